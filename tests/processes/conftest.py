"""Fixtures for runs of several processes."""

import sys
from pathlib import Path

import pytest

# Test modules are no package, so what they share is found by path.
sys.path.insert(0, str(Path(__file__).parents[1] / "recorder"))
sys.path.insert(0, str(Path(__file__).parent))

from ranks import Ranks
from workshop import Workshop


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path)


@pytest.fixture(scope="module")
def shared_ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """One that all tests of a module share."""
    return Ranks(tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)
