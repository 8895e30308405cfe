"""Launch: run a command so that every Python process of it that trains records itself."""

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from traceparity.recorder.settings import Settings
from traceparity.tracefmt.errors import TraceExistsError, TraceFormatError, TraceparityError
from traceparity.tracefmt.recovery import finish_file

VARIABLE = "TRACEPARITY_RECORD"
BOOT = Path(__file__).parent / "boot"
NOT_RUNNABLE, NOT_FOUND = 126, 127


class LaunchError(TraceparityError):
    """The command cannot be started.

    Attributes:
        status: The exit status that says why, as shells do: 126 not runnable, 127 not found.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Order:
    """What to run and how to record it.

    Attributes:
        target: The command line after ``--``.
        out: Where the trace goes.
        settings: What to record.
        overwrite: Whether ``out`` may exist.
        rank: The rank where no launcher says it.
        verbose: Whether recorded processes say on stderr how it went.
    """

    target: tuple[str, ...]
    out: Path
    settings: Settings
    overwrite: bool = False
    rank: int | None = None
    verbose: bool = False


def command_of(target: Sequence[str]) -> list[str]:
    """The command itself: a script or ``-m module`` gets the Python that runs us.

    Raises:
        LaunchError: There is no such script or command.
    """
    first = target[0]
    if first == "-m" or first.startswith("-"):
        return [sys.executable, *target]
    if first.endswith(".py"):
        if not Path(first).is_file():
            raise LaunchError(f"{first}: no such script", NOT_FOUND)
        return [sys.executable, *target]
    found = shutil.which(first)
    if found is None:
        exists = Path(first).exists()
        what = "is not executable" if exists else "no such command"
        raise LaunchError(f"{first}: {what}", NOT_RUNNABLE if exists else NOT_FOUND)
    return [first, *target[1:]]


def default_out(target: Sequence[str]) -> Path:
    """``<script>.trace`` in the current folder."""
    name = target[1] if target[0] == "-m" and len(target) > 1 else target[0]
    return Path(Path(name).name).with_suffix(".trace")


def run(order: Order) -> int:
    """Run the command to its end and see that its traces have an index.

    Returns:
        The program's own exit status; 128 + n for one that was ended by signal n.

    Raises:
        LaunchError: The command cannot be started.
        TraceExistsError: The output exists.
        OSError: The output cannot be written.
    """
    command = command_of(order.target)
    _prepare(order.out, overwrite=order.overwrite)
    try:
        child = subprocess.Popen(command, env=_environment(order))
    except OSError as error:
        raise LaunchError(f"{order.target[0]}: {error.strerror}", NOT_RUNNABLE) from error
    status = _wait(child)
    _finish(order.out, status)
    return status


def _prepare(out: Path, *, overwrite: bool) -> None:
    if out.exists():
        if not overwrite:
            raise TraceExistsError(f"{out} exists; choose another name or pass --overwrite")
        if out.is_dir():
            for rank in out.glob("rank*.trace"):
                rank.unlink()
            out.rmdir()
        else:
            out.unlink()
    # Found out now rather than after an hour of training.
    out.parent.mkdir(parents=True, exist_ok=True)
    probe = out.with_name(f".{out.name}.probe-{os.getpid()}")
    probe.touch()
    probe.unlink()


def _environment(order: Order) -> dict[str, str]:
    told = {
        "out": str(order.out.absolute()),
        "settings": order.settings.as_data(),
        "session": uuid.uuid4().hex,
        "rank": order.rank,
        "verbose": order.verbose,
    }
    paths = [str(BOOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        VARIABLE: json.dumps(told),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the child; signals for us are for it."""

    def forward(number: int, _: object) -> None:
        child.send_signal(number)

    # A terminal sends Ctrl-C to the whole group: the child gets its own, we only must survive it.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
        signal.SIGHUP: signal.signal(signal.SIGHUP, forward),
    }
    try:
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _finish(out: Path, status: int) -> None:
    """Give the traces of processes that were killed the index that they could not write."""
    reason = f"the program ended (status {status}) without closing the trace"
    files = sorted(out.glob("rank*.trace")) if out.is_dir() else [out] if out.exists() else []
    for path in files:
        try:
            finish_file(str(path), reason)
        except (TraceFormatError, OSError) as error:
            sys.stderr.write(f"traceparity: {path}: {error}\n")
