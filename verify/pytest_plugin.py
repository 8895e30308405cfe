"""The pytest plugin: fixtures that record trainings, compare them, and keep golden traces.

pytest loads it wherever traceparity is installed, so it imports nothing of ours until a test asks
for a fixture.
"""

import itertools
import re
import shutil
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from traceparity.differ.result import DiffResult
    from traceparity.verify.golden_fixture import Golden
    from traceparity.verify.recorder_fixture import Recorder

_FAILED = pytest.StashKey[bool]()
_FOLDERS = pytest.StashKey["_Folders"]()
_REWRITTEN = "traceparity golden trace"
_ODD = re.compile(r"[^\w.\[\]=-]+")
_LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class _Folders:
    """Where the traces of a test are written, and where they are kept if it fails."""

    used: Path
    kept: Path


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("traceparity", "recorded trainings")
    group.addoption(
        "--tp-update",
        action="store_true",
        help="Rewrite golden traces with what the tests record, and show what changed.",
    )
    group.addoption(
        "--tp-keep",
        action="store_true",
        help="Keep the traces of all tests, not only those of tests that fail.",
    )
    parser.addini(
        "tp_artifacts",
        "Folder for the traces of tests that fail, relative to the root folder.",
        default="tp-artifacts",
    )


# The wrapper of the old kind: pytest 7 knows no other, and would not even start.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Note that a test failed, and say where its traces are kept; its teardown is the last word."""
    outcome = yield
    report = outcome.get_result()
    if _FOLDERS not in item.stash:
        return
    folders = item.stash[_FOLDERS]
    if report.failed:
        item.stash[_FAILED] = True
        if any(folders.used.iterdir()):
            report.sections.append(("traceparity", f"traces are kept in {folders.kept}"))
    if report.when == "teardown":
        failed = item.stash.get(_FAILED, False)
        _put_away(folders, failed=failed, keep=failed or item.config.getoption("tp_keep"))


def _put_away(folders: _Folders, *, failed: bool, keep: bool) -> None:
    if keep and any(folders.used.iterdir()):
        # Those of an earlier run would be taken for those of this one.
        shutil.rmtree(folders.kept, ignore_errors=True)
        shutil.copytree(folders.used, folders.kept)
        # Traces are large, and nobody means to add them to the repository.
        mark = folders.kept.parent / ".gitignore"
        if not mark.exists():
            mark.write_text("*\n")
    if not failed:
        # The commands that a failure proposes name the traces where they were.
        shutil.rmtree(folders.used, ignore_errors=True)


@pytest.fixture
def tp_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the traces of one test, kept as an artifact where the test fails."""
    node, config = request.node, request.config
    folder = tmp_path_factory.mktemp("tp", numbered=True)
    kept = config.rootpath / config.getini("tp_artifacts") / _slug(node.nodeid)
    node.stash[_FOLDERS] = _Folders(folder, kept)
    return folder


@pytest.fixture
def tp_record(tp_folder: Path) -> "Recorder":
    """The recorder of the test.

    ``with tp_record() as trace`` records a block, ``tp_record.run("train.py")`` a command; both
    give the path of the trace.
    """
    from traceparity.verify.recorder_fixture import Recorder

    return Recorder(tp_folder)


@pytest.fixture
def tp_diff() -> "Callable[..., DiffResult]":
    """Compares two traces under a policy: ``tp_diff(reference, target, policy=None)``."""
    from traceparity.verify.same_training import compare_training

    return compare_training


@pytest.fixture
def tp_golden(request: pytest.FixtureRequest) -> "Golden":
    """Compares a trace with the one kept in the repository: ``tp_golden(trace)``.

    It lies in the folder ``golden`` beside the test's file; ``--tp-update`` writes it.
    """
    from traceparity.verify.golden_fixture import Golden

    node: Any = request.node
    folder = node.path.parent / "golden" / node.path.stem
    return Golden(
        folder / _slug(node.nodeid.partition("::")[2] or node.name),
        update=request.config.getoption("tp_update"),
        # Properties travel with the report, from the workers of pytest-xdist too.
        tell=lambda text: node.user_properties.append((_REWRITTEN, text)),
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the golden traces that were rewritten, each with what changed."""
    told = [
        value
        for report in itertools.chain.from_iterable(terminalreporter.stats.values())
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == _REWRITTEN
    ]
    if told:
        terminalreporter.section("golden traces")
        for text in told:
            terminalreporter.write_line(text)


def _slug(name: str) -> str:
    """A name for a file from the name of a test; of two tests never the same."""
    plain = name.replace("::", ".")
    slug = _ODD.sub("_", plain)[-_LONGEST_NAME:]
    return slug if slug == plain else f"{slug}-{zlib.crc32(name.encode()):08x}"
