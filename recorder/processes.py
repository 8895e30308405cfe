"""Processes: which of them run, which came from which, and how they are made to end."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

_LOOK = 0.05
"""Seconds between two looks whether processes have ended."""
_KILLED = 5.0
"""Seconds that killed processes have to be gone, where the system is slow."""


def runs(process: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    found = _state_and_parent(process)
    return found is not None and found[0] != "Z"


def descendants(process: int) -> list[int]:
    """All processes that came from one, nearest first, as far as the system tells."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        found = _state_and_parent(int(entry.name))
        if found is not None:
            children.setdefault(found[1], []).append(int(entry.name))
    tree = list(children.get(process, ()))
    for each in tree:
        tree += children.get(each, ())
    return tree


def stop(program: subprocess.Popen[bytes], recorded: Iterable[int], grace: float) -> None:
    """Make a program end, with all processes that came from it; returns when it has.

    The program and those of its processes that record themselves are asked by SIGTERM: a shell
    would not pass it on, and workers of theirs end with them. What runs after the time of grace is
    killed.

    Args:
        program: The program.
        recorded: Processes that record themselves; those that did not come from it are left alone.
        grace: Seconds between asking and killing.
    """
    tree = descendants(program.pid)
    asked = [process for process in recorded if process in tree]
    if program.poll() is None:
        program.terminate()
    for process in asked:
        _send(process, signal.SIGTERM)
    if not _gone(program, tree, grace):
        # Those that came since are found while their parent still runs.
        tree += descendants(program.pid) if program.poll() is None else []
        program.kill()
        for process in filter(runs, tree):
            _send(process, signal.SIGKILL)
        _gone(program, tree, _KILLED)
    program.wait()


def _gone(program: subprocess.Popen[bytes], tree: list[int], seconds: float) -> bool:
    """Whether a program and all of its processes end within a time."""
    until = time.monotonic() + seconds
    while program.poll() is None or any(map(runs, tree)):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK)
    return True


def _send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _state_and_parent(process: int) -> tuple[str, int] | None:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    fields = status.rpartition(")")[2].split()
    return fields[0], int(fields[1])
