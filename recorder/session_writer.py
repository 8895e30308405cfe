"""The writer of a session: one process among others, and a guest who makes no trouble."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from traceparity.tracefmt.errors import TraceError
from traceparity.tracefmt.records import Header
from traceparity.tracefmt.writer import Writer

_PATIENCE = 10.0
"""Seconds to wait for another process that creates its file; that takes milliseconds."""
_LOOK = 0.01


class SessionWriter(Writer):
    """Creates its file alone, and tells of values that it cannot write."""

    def __init__(
        self,
        folder: Path,
        path: Callable[[], Path],
        header: Callable[[], Header],
        failed: Callable[[Exception], None],
    ) -> None:
        """Prepare a trace, as `Writer` does.

        Args:
            folder: Where all processes of the run write.
            path: Tells where to write when the file is created.
            header: Called when the file is created.
            failed: Called when a value cannot be written.
        """
        super().__init__(path, header)
        self._folder = folder
        self._failed = failed

    def open(self) -> BinaryIO:
        """As `Writer.open`; of several processes, one after the other."""
        if self.path is not None:
            return super().open()
        with _alone(self._folder):
            return super().open()

    def value(self, digest: bytes, data: bytes | memoryview) -> tuple[int, int]:
        """As `Writer.value`; values are written in the midst of hooks, which cannot help it."""
        try:
            return super().value(digest, data)
        except (OSError, TraceError) as error:
            self._failed(error)
            return 0, 0


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    """Take the lock; a process that holds it for long must not keep the training waiting."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    errno.ETIMEDOUT, "another process keeps it locked", str(folder)
                ) from None
            time.sleep(_LOOK)
        except OSError:
            # Some network file systems have no such locks; launchers that say ranks need none.
            return
        else:
            return
