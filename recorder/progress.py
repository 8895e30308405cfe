"""Progress: what a person at a terminal is told of a recording, and the closing line."""

import sys
import time

from traceparity.recorder.destination import rank_and_world
from traceparity.recorder.guard import Guard, warn
from traceparity.tracefmt.writer import Writer

INTERVAL = 2.0
"""Seconds between two looks of the line that is rewritten while a recording goes on."""
_CLEAR = "\r\x1b[2K"


class Progress:
    """A line on stderr now and then, where that is a terminal, and one at the end."""

    def __init__(self, writer: Writer, guard: Guard, *, verbose: bool) -> None:
        """Prepare; nothing is written yet.

        Args:
            writer: Knows how much was recorded.
            guard: Knows how long that took.
            verbose: Whether to say anything at all.
        """
        self._writer = writer
        self._guard = guard
        self._verbose = verbose
        self._began = self._told = time.perf_counter()
        self._shown = False

    def step(self) -> None:
        """A part of a step was written."""
        now = time.perf_counter()
        if not self._verbose or now - self._told < INTERVAL:
            return
        self._told = now
        if _is_terminal() and rank_and_world()[0] == 0:
            self._shown = True
            # The cursor goes back to the first column, so that the program's next line covers it.
            _write(f"{_CLEAR}traceparity: {_count(self._writer.steps_written, 'step')}\r")

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._shown = False
            _write(_CLEAR)

    def end(self) -> None:
        """Say how it went, if there was anything to record."""
        self.clear()
        if not self._verbose or not self._writer.steps_written:
            return
        wall = time.perf_counter() - self._began
        share = 100 * self._guard.seconds / max(wall, 1e-9)
        warn(
            f"{_count(self._writer.steps_written, 'step')},"
            f" {_count(self._writer.rows_written, 'observation')},"
            f" {self._writer.bytes_written:,} bytes in {self._writer.path}"
            f" (recording took {self._guard.seconds:.1f} s, {share:.0f} % of the run)"
        )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("s" if number != 1 else "")


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        # Closed, or replaced by something that is no stream.
        return False


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        # The terminal went away; there is nobody to tell.
        return
