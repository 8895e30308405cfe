"""The keeper: a small process beside each command, which ends whatever the command has started.

It adopts the orphans among the command's descendants (a subreaper, on Linux), so that each of them
stays below it, in whatever session, group and environment; of other commands' processes none does.
It is run by its path, without the rest of the package: it has to start in no time.

On stdin comes the order, as `order` writes it; whatever follows, or the end of stdin, as where
whoever gave the order is killed, asks to end everything. What happens is told on the descriptor
that the one argument names, in lines: ``pid N`` or ``error REASON``, then ``ended N``, with what
`os.waitstatus_to_exitcode` gives.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

# The module itself would take as long as all of the others.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

GRACE = 5.0
"""Seconds between the request to end and the end by force."""
LINGER = 1.0
"""Seconds that what a command has started may take to end after it, without being asked to."""
PATIENCE = 5.0
"""Seconds after which it is left to the system to end what was killed."""
_LOOK = 0.05
_SET_CHILD_SUBREAPER = 36


class Keeper:
    """Starts a command and ends what it has started."""

    def __init__(self, report: int) -> None:
        """Adopt orphans from now on, and be woken when a child ends.

        Args:
            report: Descriptor to tell on.
        """
        self._report = report
        self._ended: int | None = None
        self._command = 0
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def start(self, command: list[bytes], environment: dict[bytes, bytes]) -> None:
        """Start the command in a session of its own, and tell its process or what is wrong."""
        heard, say = os.pipe()
        self._command = os.fork()
        if not self._command:
            _become(command, environment, say)
        os.close(say)
        with open(heard, encoding="utf-8") as stream:
            problem = stream.read()
        self._tell("error", problem) if problem else self._tell("pid", self._command)

    def keep(self) -> None:
        """Wait for the end of the command, or for the request to end it."""
        while self._ended is None:
            ready, _, _ = select.select([0, self._woken], [], [])
            if 0 in ready:
                return
            os.read(self._woken, 4096)
            self._reap()
        self._wait_for_all(LINGER)
        self._tell("ended", self._ended)
        select.select([0], [], [])

    def end(self) -> None:
        """End what still runs."""
        self._signal(signal.SIGTERM)
        self._wait_for_all(GRACE)
        deadline = time.monotonic() + PATIENCE
        while self._reap() and time.monotonic() < deadline:
            # What ignored the request; and what was started while we looked.
            self._signal(signal.SIGKILL)
            self._wait_for_all(_LOOK)
        if self._ended is not None:
            self._tell("ended", self._ended)

    def _wait_for_all(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._reap() and (left := deadline - time.monotonic()) > 0:
            if select.select([self._woken], [], [], min(left, _LOOK))[0]:
                os.read(self._woken, 4096)

    def _reap(self) -> bool:
        """Take note of children that have ended; whether there are others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self._command:
                self._ended = os.waitstatus_to_exitcode(status)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # All that is known of it where the system does not tell who descends from whom.
            os.killpg(self._command, number)
        for process in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)

    def _tell(self, what: str, value: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._report, f"{what} {value}\n".encode())


def descendants(ancestor: int) -> list[int]:
    """The processes that descend from one, where the system tells (Linux)."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:
                # The name in parentheses may hold anything; state and parent follow the last one.
                parent = int(stream.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = list(children.get(ancestor, ()))
    for process in found:
        found += children.get(process, ())
    return found


def _become(command: list[bytes], environment: dict[bytes, bytes], say: int) -> NoReturn:
    """Become the command, in the child."""
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            # Python ignores them, and a command would inherit that.
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvpe(command[0], command, environment)
    except (OSError, ValueError) as error:
        os.write(say, str(getattr(error, "strerror", None) or error).encode())
    finally:
        os._exit(127)


def order(command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """What a keeper is told: the command with its whole environment.

    Raises:
        ValueError: A word or a variable holds a NUL character.
    """
    words = [os.fsencode(word) for word in command]
    added = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    if any(b"\0" in each for each in (*words, *added)):
        raise ValueError("a word or a variable holds a NUL character")
    told = b"\0".join([b"%d" % len(words), *words, *added])
    return b"%d\n%s" % (len(told), told)


def _ordered() -> tuple[list[bytes], dict[bytes, bytes]]:
    """The command and the environment of the order on stdin.

    Raises:
        EOFError: It ends before.
    """
    told = b""
    # Unbuffered, and no further than it goes: select must see what follows.
    while not told.endswith(b"\n"):
        told += _read(1)
    left, told = int(told), b""
    while len(told) < left:
        told += _read(left - len(told))
    count, *rest = told.split(b"\0")
    words, added = rest[: int(count)], rest[int(count) :]
    pairs = (each.partition(b"=") for each in added)
    return words, {name: value for name, _, value in pairs}


def _read(size: int) -> bytes:
    if not (read := os.read(0, size)):
        raise EOFError
    return read


def main() -> None:
    """Keep the command that is ordered on stdin."""
    report = int(sys.argv[1])
    os.set_inheritable(report, False)
    try:
        command, environment = _ordered()
    except EOFError:
        return
    keeper = Keeper(report)

    def end(*_: object) -> NoReturn:
        raise SystemExit

    signal.signal(signal.SIGTERM, end)
    with contextlib.suppress(SystemExit):
        keeper.start(command, environment)
        keeper.keep()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    keeper.end()


if __name__ == "__main__":
    main()
