"""Launch: run a command so that every Python process of it that trains records itself."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from traceparity.recorder.forwarding import Forwarding
from traceparity.recorder.output import make_ready, trace_files
from traceparity.recorder.processes import runs
from traceparity.recorder.settings import Settings
from traceparity.tracefmt import framing
from traceparity.tracefmt.codec import unpack_header
from traceparity.tracefmt.errors import TraceFormatError, TraceparityError
from traceparity.tracefmt.recovery import finish_file
from traceparity.tracefmt.source import open_file

VARIABLE = "TRACEPARITY_RECORD"
"""Holds, as JSON, what the recorder of a child process needs to know."""
END_STATE = "TRACEPARITY_END_STATE"
"""Names the folder in which each training process writes fingerprints of what it ends with."""
BOOT = Path(__file__).parent / "boot"
NOT_RUNNABLE, NOT_FOUND = 126, 127
_SCRIPTS = (".py", ".sh")
_LAUNCHERS = ("torch.distributed.", "accelerate.", "deepspeed.")
"""Modules that start others: no trace is named after them."""


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
        eager: Whether to have `torch.compile` compile nothing, so that hooks see all modules.
    """

    target: tuple[str, ...]
    out: Path
    settings: Settings
    overwrite: bool = False
    rank: int | None = None
    verbose: bool = False
    eager: bool = False


def command_of(
    target: Sequence[str], folder: Path | None = None, search: str | None = None
) -> list[str]:
    """The command itself: a script or ``-m module`` gets the Python that runs us.

    Args:
        target: The command line.
        folder: Where it will run, and relative paths begin; None for the current folder.
        search: The PATH in which commands are looked for; None for our own.

    Raises:
        LaunchError: There is no such script or command.
    """
    first, here = target[0], folder or Path()
    if first.startswith("-"):
        return [sys.executable, *target]
    if first.endswith(".py"):
        if not (here / first).is_file():
            raise LaunchError(f"{first}: no such script", NOT_FOUND)
        return [sys.executable, *target]
    found = shutil.which(os.path.join(here, first) if os.sep in first else first, path=search)
    if found is None:
        exists = (here / first).exists()
        what = "is not executable" if exists else "no such command"
        raise LaunchError(f"{first}: {what}", NOT_RUNNABLE if exists else NOT_FOUND)
    return [first, *target[1:]]


def default_out(target: Sequence[str]) -> Path:
    """``<script>.trace`` in the current folder, also for the script of a launcher or a shell."""
    for word, following in itertools.pairwise((*target, "")):
        if word == "-m" and following and not following.startswith(_LAUNCHERS):
            return Path(f"{following}.trace")
        if word.endswith(_SCRIPTS):
            return Path(f"{Path(word).stem}.trace")
    return Path("python.trace" if target[0].startswith("-") else f"{Path(target[0]).name}.trace")


Watch = Callable[[subprocess.Popen[bytes]], None]
"""Called with the program when it runs; returns when there is nothing more to watch for."""


def run(order: Order, watch: Watch | None = None) -> int:
    """Run the command to its end and see that its traces have an index.

    Args:
        order: What to run and how to record it.
        watch: Looks at the program while it runs, and may make it end.

    Returns:
        The program's own exit status; 128 + n for one that was ended by signal n.

    Raises:
        LaunchError: The command cannot be started.
        TraceExistsError: The output exists.
        OSError: The output cannot be written.
    """
    command = command_of(order.target)
    make_ready(order.out, overwrite=order.overwrite)
    with tempfile.NamedTemporaryFile(prefix="tp-record-") as attached, Forwarding() as forwarding:
        environment = recording_environment(order, os.environ, uuid.uuid4().hex, attached.name)
        try:
            child = forwarding.start(command, environment)
        except OSError as error:
            raise LaunchError(f"{order.target[0]}: {error.strerror}", NOT_RUNNABLE) from error
        if watch is not None:
            watch(child)
        status = exit_status(child.wait())
        for problem in finish_traces(order.out, status):
            say(problem)
        if not trace_files(order.out):
            say(why_nothing(order.out, anyone=bool(os.path.getsize(attached.name))))
    return status


def exit_status(ended: int) -> int:
    """The status of an ended child as shells tell it: 128 + n where signal n ended it."""
    return ended if ended >= 0 else 128 - ended


def recording_environment(
    order: Order, environment: Mapping[str, str], session: str, attached: str
) -> dict[str, str]:
    """The environment in which every process of a command that trains records itself.

    Args:
        order: What to record, and where to.
        environment: What the command would have without us.
        session: Names this execution in the header of its traces.
        attached: A file that is there; it gets a word once a process has begun to record.
    """
    told = {
        "out": str(order.out.absolute()),
        "settings": order.settings.as_data(),
        "session": session,
        "rank": order.rank,
        "verbose": order.verbose,
        "attached": attached,
    }
    compiling = {"TORCHDYNAMO_DISABLE": "1"} if order.eager else {}
    return {**with_boot(environment), **compiling, VARIABLE: json.dumps(told)}


def with_boot(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which every Python process runs our boot file when it starts."""
    paths = [str(BOOT), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def finish_traces(out: Path, status: int) -> list[str]:
    """Give the traces of processes that were killed the index that they could not write.

    Returns:
        What is wrong with traces that cannot be finished.
    """
    reason = f"its process ended without closing it; the status of the program was {status}"
    problems = []
    for path in trace_files(out):
        try:
            if (process := _still_writing(path)) is not None:
                problems.append(f"{path}: process {process} still runs and records")
                continue
            finish_file(path, reason)
        except TraceFormatError as error:
            problems.append(f"{path}: {error}")
        except OSError:
            # A full disk: whoever wrote to it has said so, and the trace is readable as it is.
            continue
    return problems


def _still_writing(path: Path) -> int | None:
    """The process that outlives the program, in the background, and writes to this trace."""
    with contextlib.closing(open_file(path)) as source:
        if framing.footer_offset(source) is not None:
            return None
        version, head = framing.read_beginning(source)
        header = unpack_header(framing.read_payload(source, head), version)
    process = int(header.process.get("pid", 0))
    return process if runs(process) else None


def why_nothing(out: Path, *, anyone: bool) -> str:
    """Why a command left no trace; ``anyone`` says whether a process had begun to record."""
    if anyone:
        return f"{out} was not written: the program made no training step that could be recorded"
    return (
        f"{out} was not written: no process recorded itself"
        " (none imported torch, or python ran with -E, -I or -S)"
    )


def say(message: str) -> None:
    """Tell people something on stderr, in a line that is recognised as ours."""
    # A reader of our stderr that went away must not change the status that we report.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"traceparity: {message}\n")
        sys.stderr.flush()
