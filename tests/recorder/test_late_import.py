"""A module that is imported late is told of once its body has run, and is imported as ever."""

import importlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from traceparity.recorder.late_import import when_imported


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "late_one.py").write_text("import sys\nif sys.argv[0] == 'no': 1 / 0\nready = True")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, "late_one", raising=False)
    return "late_one"


def test_a_module_is_told_of_when_it_is_whole(module: str) -> None:
    told = []
    before = [*sys.meta_path]
    when_imported(module, lambda found: told.append(found.ready))
    importlib.util.find_spec(module)  # A probe loads nothing.

    assert told == []
    found = importlib.import_module(module)
    assert told == [True]
    assert sys.meta_path == before
    assert type(found.__loader__) is type(found.__spec__.loader) is SourceFileLoader
    when_imported(module, lambda found: told.append(found.ready))
    assert told == [True, True]


def test_an_import_that_fails_is_tried_again(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    when_imported(module, told.append)
    monkeypatch.setattr(sys, "argv", ["no"])
    with pytest.raises(ZeroDivisionError) as failed:
        importlib.import_module(module)
    monkeypatch.setattr(sys, "argv", ["yes"])

    assert told == []
    assert "late_import.py" not in {Path(entry.path).name for entry in failed.traceback}
    assert importlib.import_module(module) is told[0]


def test_one_that_waits_no_longer_is_not_told(module: str) -> None:
    told = []
    when_imported(module, told.append)()
    importlib.import_module(module)

    assert told == []
