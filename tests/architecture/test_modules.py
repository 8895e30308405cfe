"""Modules are small and named after one idea."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "benchmarks",
    "cli",
    "differ",
    "examples",
    "invariants",
    "recorder",
    "tests",
    "tracefmt",
    "traceparity",
    "verify",
)
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
NAMES_THAT_SAY_NOTHING = {"base", "common", "helpers", "misc", "util", "utils"}
MOST_LINES_OF_A_MODULE = 500
MOST_LINES_OF_A_FUNCTION = 60


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if lines > MOST_LINES_OF_A_FUNCTION:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {lines} lines"


def test_there_are_modules_to_judge():
    assert ROOT / "traceparity" / "__init__.py" in MODULES


def test_no_module_has_a_name_that_says_nothing():
    named = {path.relative_to(ROOT) for path in MODULES if path.stem in NAMES_THAT_SAY_NOTHING}

    assert named == set()


def test_no_module_is_long():
    lines = {path.relative_to(ROOT): path.read_text().count("\n") for path in MODULES}

    assert {path: n for path, n in lines.items() if n > MOST_LINES_OF_A_MODULE} == {}


def test_no_function_is_long():
    assert [found for path in MODULES for found in long_functions(path)] == []


def test_modules_that_tests_share_have_names_of_their_own():
    """They are found by name alone, so that of two the wrong one may be imported."""
    shared = [
        path.name
        for path in (ROOT / "tests").rglob("*.py")
        if not path.name.startswith("test_") and path.name != "conftest.py"
    ]

    assert {name for name in shared if shared.count(name) > 1} == set()
