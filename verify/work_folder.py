"""The work folder: where the cases of a file write, emptied before each run."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from traceparity.verify.errors import WorkFolderError

_MARK = ".gitignore"
_TEXT = "# Written by tp-verify, which empties this folder.\n*\n"


def default_work(case_file: Path) -> Path:
    """The work folder of a case file: beside it, with its name."""
    return case_file.with_name(f"{case_file.stem}.verify")


@contextlib.contextmanager
def held(work: Path) -> Iterator[None]:
    """Make the folder and keep other runs out of it.

    Raises:
        WorkFolderError: It holds something that is not ours, or another run uses it.
    """
    try:
        work.mkdir(parents=True, exist_ok=True)
        mark = work / _MARK
        if not mark.exists():
            if any(work.iterdir()):
                raise WorkFolderError(f"{work} holds something else; choose another with --work")
            mark.write_text(_TEXT)
        elif mark.read_text() != _TEXT:
            raise WorkFolderError(f"{work} is no folder of tp-verify; choose another with --work")
        # Not the folder itself: the processes that record in it lock that among themselves.
        handle = os.open(mark, os.O_RDONLY)
    except OSError as error:
        raise WorkFolderError(f"{work}: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkFolderError(f"{work} is used by another tp-verify; wait for it") from None
        except OSError:
            # A file system without locks: nobody can be kept out.
            pass
        yield
    finally:
        os.close(handle)


def emptied(folder: Path) -> Path:
    """The folder of a case without anything of an earlier run, so that nothing stale is judged.

    Raises:
        WorkFolderError: It cannot be emptied.
    """
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
    except OSError as error:
        raise WorkFolderError(f"{folder}: {error.strerror or error}") from error
    return folder
