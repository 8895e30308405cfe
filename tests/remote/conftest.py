"""Lets the tests of remote traces import what the tests of the differ write traces with."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "differ"))
sys.path.insert(0, str(Path(__file__).parent))

from file_server import FileServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    """A web server for the files in a fresh folder."""
    folder = tmp_path / "served"
    folder.mkdir()
    with FileServer(folder) as running:
        yield running
