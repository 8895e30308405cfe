"""Interruptions: what ends a command early, and how it ends then."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from traceparity.cli.exits import INTERRUPTS, Exit


def hear_interrupts() -> None:
    """Take whatever tells us to end, or that our terminal is gone, for Ctrl-C."""
    _hear(signal.default_int_handler)


@contextlib.contextmanager
def interruptible(command: str) -> Iterator[threading.Event]:
    """Have what runs end where we are told to, or lose our terminal; the event says so.

    However often we are told, nothing is raised: what ends must end in order.
    """
    halt = threading.Event()

    def stop(*_: object) -> None:
        if not halt.is_set():
            halt.set()
            _say(f"{command}: interrupted; ending what runs")

    before = {number: signal.getsignal(number) for number in INTERRUPTS}
    _hear(stop)
    try:
        yield halt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _hear(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in INTERRUPTS:
        # Under nohup we are to outlive our terminal.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def leave(command: str, report: Callable[[], None]) -> NoReturn:
    """Report, and exit as one that was interrupted, whatever else is on its way."""
    try:
        report()
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - the status is 130 all the same
        _say(f"{command}: {error}")
    finally:
        # A comparison that was given up still runs in a thread, which Python would wait for.
        os._exit(Exit.INTERRUPTED)


def _say(line: str) -> None:
    # Not through click or Python's own stream, which a signal may have interrupted.
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="replace"))
