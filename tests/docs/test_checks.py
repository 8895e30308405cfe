"""Pages that name tests name tests that exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
PAGES = {"reference/checks.md": 50, "how-to/verify.md": 38}
"""Pages, and how many tests each of them names at least."""


def named_on(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    return set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", text))


NAMED = sorted(set().union(*map(named_on, PAGES)))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_tests(page):
    assert len(named_on(page)) >= PAGES[page]


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(path, name):
    assert re.search(rf"^def {name}\(", (TESTS / path).read_text(encoding="utf-8"), re.MULTILINE)
