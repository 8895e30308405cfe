"""A command with all that it starts: waited for, and ended."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from traceparity.verify import keeper

_LOOK = 0.05
"""Seconds between two looks at whether a running command is to be ended."""
LONGEST_END = keeper.LINGER + keeper.GRACE + keeper.PATIENCE + 10.0
"""Seconds after which a command is given up that was to end, and with it its keeper."""
_KEEPER = (sys.executable, "-I", "-S", keeper.__file__)


class ProcessGroup:
    """A running command, with all that it starts.

    Attributes:
        pid: Its process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None,
        environment: Mapping[str, str],
        logs: tuple[Path, Path],
    ) -> None:
        """Start it; it reads nothing from stdin.

        Args:
            command: The command.
            cwd: Where it runs; None for the current folder.
            environment: All of its environment.
            logs: Files for stdout and stderr.

        Raises:
            OSError: It cannot be started, or a file cannot be written.
            ValueError: A word or a variable holds a NUL character.
        """
        order = keeper.order(command, environment)
        self._ended: int | None = None
        self._heard = b""
        self._report, tell = os.pipe()
        try:
            with logs[0].open("wb") as stdout, logs[1].open("wb") as stderr:
                # In a session of its own: it outlives a Ctrl-C at the terminal, to end the command.
                self._keeper = subprocess.Popen(
                    [*_KEEPER, str(tell)], cwd=cwd, stdin=subprocess.PIPE, stdout=stdout,
                    stderr=stderr, pass_fds=(tell,), start_new_session=True,
                )  # fmt: skip
        except BaseException:
            os.close(self._report)
            raise
        finally:
            os.close(tell)
        try:
            self.pid = self._started(order)
        except BaseException:
            self.end()
            raise

    def _started(self, order: bytes) -> int:
        self._say(order)
        what, value = self._hear(None) or ("error", "the process that starts it has ended")
        if what != "pid":
            raise OSError(value)
        return int(value)

    def wait(self, timeout: float | None, stop: threading.Event) -> int | None:
        """Wait for its end; what it has started gets a second more to end.

        Args:
            timeout: Seconds to wait; None for as long as it takes.
            stop: Set by another thread to give up.

        Returns:
            What `Popen.wait` returns; None where it still runs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not stop.is_set() and self._ended is None:
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left <= 0:
                break
            self._note(self._hear(left))
        return self._ended

    def end(self) -> int:
        """End the command and all that it started, and return what `Popen.wait` returns."""
        if self._keeper.stdin is None or self._keeper.stdin.closed:
            return -signal.SIGKILL if self._ended is None else self._ended
        self._say(b"end\n")
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.close()
        try:
            self._keeper.wait(LONGEST_END)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        while (told := self._hear(0)) is not None:
            self._note(told)
        os.close(self._report)
        return -signal.SIGKILL if self._ended is None else self._ended

    def _say(self, line: bytes) -> None:
        assert self._keeper.stdin is not None
        # A keeper that somebody has killed hears nothing; that is seen where it should answer.
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.write(line)
            self._keeper.stdin.flush()

    def _hear(self, timeout: float | None) -> tuple[str, str] | None:
        """The next that the keeper tells; None where it tells nothing in time, or has ended."""
        while b"\n" not in self._heard:
            # No select, which knows the first 1024 descriptors of a process only.
            ready = select.poll()
            ready.register(self._report, select.POLLIN)
            if not ready.poll(None if timeout is None else 1000 * timeout):
                return None
            if not (read := os.read(self._report, 4096)):
                return None
            self._heard += read
        line, _, self._heard = self._heard.partition(b"\n")
        what, _, value = line.decode(errors="replace").partition(" ")
        return what, value

    def _note(self, told: tuple[str, str] | None) -> None:
        if told is not None and told[0] == "ended":
            self._ended = int(told[1])
        elif self._keeper.poll() is not None and self._ended is None:
            # Somebody has killed the keeper: of the command only its group is known now.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._ended = -signal.SIGKILL
