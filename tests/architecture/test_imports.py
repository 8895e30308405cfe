"""Dependencies point one way, and what reads traces works without torch."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import traceparity

ROOT = Path(__file__).parents[2]

IMPORT_WITH_SUBMODULES = """
import importlib, pkgutil, sys

package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(getattr(package, "__path__", ()), package.__name__ + "."):
    importlib.import_module(module.name)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch"}))
"""


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter in the root folder, importing from the checkout."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )


@pytest.mark.parametrize(
    "name",
    [
        "traceparity.tracefmt",
        "traceparity.differ",
        "traceparity.invariants",
        "traceparity.cli.check",
        "traceparity.cli.diff",
        "traceparity.cli.infer",
        "traceparity.cli.show",
    ],
)
def test_what_reads_traces_loads_no_torch(name):
    """A fresh process that imports all of it has no torch; a slim CI job never needs it."""
    done = run_python("-c", IMPORT_WITH_SUBMODULES, name)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


def test_the_facade_alone_loads_neither_recorder_nor_torch():
    done = run_python(
        "-c",
        "import sys, traceparity; "
        "print(traceparity.__version__, {'torch', 'traceparity.recorder'} & set(sys.modules))",
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" set()\n")


def test_the_import_contracts_hold():
    """The contracts are in pyproject.toml; the message of a broken one names the import."""
    done = run_python("-c", "from importlinter.cli import lint_imports_command as run; run()")

    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_pickled():
    """What reads a file of ours, or a result of another process, runs no code that it holds."""
    named = {
        alias.name.partition(".")[0]
        for folder in ("cli", "differ", "invariants", "recorder", "tracefmt", "verify")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom)
                      else node.names)
    }  # fmt: skip

    assert "msgpack" in named
    assert not named & {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}


def test_the_public_names_are_these():
    assert traceparity.__all__ == ["__version__", "assert_same_training", "record"]
