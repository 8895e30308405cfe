"""The output: the place of a trace, made ready before the program starts."""

import os
import stat
import tempfile
from pathlib import Path

from traceparity.tracefmt.errors import TraceExistsError
from traceparity.tracefmt.framing import MAGIC

RANK_FILES = "rank*.trace"
"""The traces in a folder of several processes."""


def make_ready(out: Path, *, overwrite: bool) -> None:
    """See that a trace can be written, and take away the one that it replaces.

    Raises:
        TraceExistsError: What is there may not be replaced; it is untouched.
        OSError: The folder cannot be made or written to.
    """
    exists = os.path.lexists(out)
    if exists and not overwrite:
        raise TraceExistsError(f"{out} exists; choose another name or pass --overwrite")
    old = _old_files(out) if exists else []
    # Found out now rather than after an hour of training.
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out.parent):
        pass
    for file in old:
        file.unlink()
    if out.is_dir():
        out.rmdir()


def _old_files(out: Path) -> list[Path]:
    """The files of an old recording; anything else was never meant to be overwritten."""
    if stat.S_ISDIR(out.lstat().st_mode):
        # A process killed at the worst moment leaves the beginning of a trace under a hidden name.
        files = [*out.glob(RANK_FILES), *out.glob(f".{RANK_FILES}.*")]
        if len(files) == len(list(out.iterdir())):
            return files
        raise TraceExistsError(f"{out} is a folder with other files in it; choose another name")
    if out.is_file() and _begins_as_trace(out):
        return [out]
    raise TraceExistsError(f"{out} is no trace, so it is not overwritten; choose another name")


def _begins_as_trace(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) in (MAGIC, b"")


def trace_files(out: Path) -> list[Path]:
    """The traces that a run has written."""
    if out.is_dir():
        return sorted(out.glob(RANK_FILES))
    return [out] if out.is_file() else []
