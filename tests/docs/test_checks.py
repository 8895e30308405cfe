"""The page of checks names tests that exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "checks.md"
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))))


def test_the_page_names_tests():
    assert len(NAMED) > 50


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(path, name):
    assert re.search(rf"^def {name}\(", (TESTS / path).read_text(encoding="utf-8"), re.MULTILINE)
