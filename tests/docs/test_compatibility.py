"""Each row of the compatibility page names a test that exists, and versions that are pinned."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compatibility.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]


def rows_with_a_test() -> list[str]:
    return [row for row in ROWS if not row.endswith("| test |")]


@pytest.mark.parametrize("row", rows_with_a_test())
def test_a_row_names_a_test_that_exists(row: str) -> None:
    named = re.search(r"`(test_\w+\.py)::(test_\w+)(?:\[(\w+)\])?` \|$", row)
    assert named is not None, row
    (path,) = (ROOT / "tests").rglob(named[1])
    tree = ast.parse(path.read_text())

    assert named[2] in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    constants = {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)}
    assert named[3] is None or named[3] in constants


def test_the_versions_are_those_that_are_tested() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    named = re.findall(r"\b([a-z-]+) (\d+\.\d+\.\d+)\b", PAGE)

    assert len(named) > 10
    assert {name: pinned.get(name) for name, _ in named} == dict(named)
    assert f"torch {'.'.join(pinned['torch'].split('.')[:2])}" in PAGE
