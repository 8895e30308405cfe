"""A command in a process group of its own: waited for, and ended with all that it started."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

GRACE = 5.0
"""Seconds between the request to end and the end by force."""
_LOOK = 0.05
"""Seconds between two looks at a running command."""


class ProcessGroup:
    """A running command.

    Attributes:
        pid: Its process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None,
        environment: Mapping[str, str],
        mark: str,
        logs: tuple[Path, Path],
    ) -> None:
        """Start it; it reads nothing from stdin.

        Args:
            command: The command.
            cwd: Where it runs; None for the current folder.
            environment: All of its environment, in which ``mark`` is somewhere.
            mark: Text in the environment of this command and of nothing else.
            logs: Files for stdout and stderr.

        Raises:
            OSError: It cannot be started, or a file cannot be written.
        """
        self._mark = mark.encode()
        with logs[0].open("wb") as stdout, logs[1].open("wb") as stderr:
            self._child = subprocess.Popen(
                command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=stdout,
                stderr=stderr, start_new_session=True,
            )  # fmt: skip
        self.pid = self._child.pid

    def wait(self, timeout: float | None, stop: threading.Event) -> int | None:
        """Wait for its end.

        Args:
            timeout: Seconds to wait; None for as long as it takes.
            stop: Set by another thread to give up.

        Returns:
            What `Popen.wait` returns; None where it still runs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not stop.is_set():
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left <= 0:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._child.wait(left)
        return self._child.poll()

    def end(self) -> int:
        """End the command and all that it started, and return what `Popen.wait` returns."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(GRACE)
        # What ignored the request, or began a session of its own.
        self._signal(signal.SIGKILL)
        return self._child.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        for process in self._members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)

    def _members(self) -> Iterator[int]:
        """Processes that have our mark in their environment, where the system tells (Linux)."""
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                marked = self._mark in entry.read_bytes()
            except OSError:
                # Another user's, or one that has just ended.
                continue
            if marked:
                yield int(entry.parent.name)
