"""The place of a trace is checked before the program starts, and nothing of the user's is lost."""

import os
from pathlib import Path

import pytest
from workshop import Workshop

from traceparity.recorder.output import make_ready
from traceparity.tracefmt.errors import TraceExistsError
from traceparity.tracefmt.framing import MAGIC

RECORDED = MAGIC + b"and so on"


def listing(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_new_place_is_left_as_it_is(tmp_path: Path) -> None:
    make_ready(tmp_path / "a.trace", overwrite=False)

    assert list(tmp_path.iterdir()) == []


def test_missing_folders_are_made(tmp_path: Path) -> None:
    make_ready(tmp_path / "runs" / "today" / "a.trace", overwrite=False)

    assert (tmp_path / "runs" / "today").is_dir()


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_what_exists_is_refused(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "a.trace"
    if kind == "file":
        out.write_bytes(RECORDED)
    elif kind == "folder":
        out.mkdir()
        (out / "rank0.trace").write_bytes(RECORDED)
    else:
        out.symlink_to("nowhere")
    before = listing(tmp_path)

    with pytest.raises(TraceExistsError, match="--overwrite"):
        make_ready(out, overwrite=False)

    assert listing(tmp_path) == before
    assert os.path.lexists(out)


@pytest.mark.parametrize("content", [RECORDED, b""])
def test_an_old_trace_goes_when_asked(content: bytes, tmp_path: Path) -> None:
    out = tmp_path / "a.trace"
    out.write_bytes(content)

    make_ready(out, overwrite=True)

    assert not out.exists()


def test_an_old_trace_of_several_processes_goes_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "a.trace"
    out.mkdir()
    for name in ("rank0.trace", "rank12.trace", ".rank1.trace.4711"):
        (out / name).write_bytes(RECORDED)

    make_ready(out, overwrite=True)

    assert not out.exists()


@pytest.mark.parametrize("kind", ["program", "folder", "device", "dangling link"])
def test_what_is_no_trace_is_never_overwritten(kind: str, tmp_path: Path) -> None:
    """`-o train.py --overwrite train.py` is easily typed."""
    out = tmp_path / "train.py"
    if kind == "program":
        out.write_text("import torch\n")
    elif kind == "folder":
        out.mkdir()
        (out / "rank0.trace").write_bytes(RECORDED)
        (out / "notes.txt").write_text("three weeks of work\n")
    elif kind == "device":
        out = Path(os.devnull)
    else:
        out.symlink_to("nowhere")
    before = listing(tmp_path)

    with pytest.raises(TraceExistsError, match="another name"):
        make_ready(out, overwrite=True)

    assert listing(tmp_path) == before
    assert os.path.lexists(out)


def test_an_old_trace_stays_when_its_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a.trace"
    out.write_bytes(RECORDED)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(OSError, match="No space"):
        make_ready(out, overwrite=True)

    assert out.read_bytes() == RECORDED


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("/proc/nowhere/a.trace", "No such file"),
        ("program.py/a.trace", "program.py"),
        ("program.py", "exists"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_the_program_runs(
    out: str, says: str, workshop: Workshop
) -> None:
    workshop.write("program.py", "print('it has run')\n")

    done = workshop.run("tp-record", "-o", out, "--", "program.py")

    assert (done.status, done.stdout) == (125, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_told_before_the_program_runs(workshop: Workshop) -> None:
    (workshop.folder / "closed").mkdir(mode=0o555)

    done = workshop.run("tp-record", "-o", "closed/a.trace", "--", "-c", "print(1)")

    assert (done.status, done.stdout) == (125, "")
    assert "Permission denied" in done.stderr
