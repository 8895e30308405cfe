"""A workshop for every test: a fresh folder with programs, and the ways to run them."""

import sys
from pathlib import Path

import pytest

# Test modules are no package, so what they share is found by path.
sys.path.insert(0, str(Path(__file__).parent))

from workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture(scope="module")
def shared_workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One that all tests of a module share, for programs that take long to start."""
    return Workshop(tmp_path_factory.mktemp("workshop"))
