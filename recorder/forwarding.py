"""Forwarding: a signal that reaches `tp-record` is meant for the program that it runs."""

import os
import signal
import subprocess
from types import FrameType, TracebackType
from typing import Any

_FROM_KEYBOARD = frozenset({signal.SIGINT, signal.SIGQUIT})
_FORWARDED = (
    *sorted(_FROM_KEYBOARD), signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


class Forwarding:
    """Passes signals on from the beginning of a ``with`` block to its end.

    Attributes:
        child: The program, once it runs.
    """

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Forwarding":
        for number in _FORWARDED:
            # What a shell or nohup told us to ignore, the program inherits as ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._forward)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start the program; signals that came before are for it as well.

        Raises:
            OSError: It cannot be started.
        """
        self.child = subprocess.Popen(command, env=environment)
        for number in self._early:
            self.child.send_signal(number)
        return self.child

    def _forward(self, number: int, _: FrameType | None) -> None:
        if self.child is None:
            self._early.append(number)
        elif not (number in _FROM_KEYBOARD and _in_foreground()):
            self.child.send_signal(number)


def _in_foreground() -> bool:
    """Whether a terminal sends what is typed to us, and thus to the program as well."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
