"""Execution: one command, run once under the recorder in a fresh process, and what came of it."""

import os
import re
import shlex
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from traceparity.differ.ending import ended_by
from traceparity.recorder.launch import (
    END_STATE,
    LaunchError,
    Order,
    command_of,
    exit_status,
    finish_traces,
    recording_environment,
    why_nothing,
    with_boot,
)
from traceparity.recorder.output import make_ready, trace_files
from traceparity.recorder.settings import Settings
from traceparity.tracefmt.errors import TraceError
from traceparity.tracefmt.reader import open_run
from traceparity.verify.process_group import ProcessGroup

TAIL_LINES = 40
"""Lines of a log that a result carries."""
INTERRUPTED = "it was interrupted"
"""The problem of a command that was ended because we are."""
FAILED = "it ended with exit status"
"""How the problem of a command begins that ended by itself, and not well."""
_TAIL_BYTES = 8192
_STEERING = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|[\x00-\x08\x0e-\x1f\x7f-\x9f]"
)
"""What a terminal obeys, by ECMA-48; line ends and tabs are text."""


@dataclass(frozen=True, slots=True, order=True)
class Process:
    """A recorded process, as the header of its trace tells it from every other one.

    Attributes:
        host: Name of the machine.
        pid: Number of the process.
        started: When its recording began, in seconds since 1970.
    """

    host: str
    pid: int
    started: float


@dataclass(frozen=True, slots=True)
class Execution:
    """What came of one execution.

    Attributes:
        command: The command as it was given.
        trace: Where its trace was to be written.
        stdout: File with all that it wrote to stdout.
        stderr: File with all that it wrote to stderr.
        problem: Why its trace cannot be judged, in one sentence; empty where it can.
        status: Exit status, 128 + n for an end by signal n; None where it was never started.
        seconds: How long it took.
        pid: The process of the command itself; 0 where it was never started.
        processes: The training processes, by rank.
        environment: Names of the variables that were added to its environment.
        stdout_tail: The last lines of stdout.
        stderr_tail: The last lines of stderr.
    """

    command: tuple[str, ...]
    trace: Path
    stdout: Path
    stderr: Path
    problem: str = ""
    status: int | None = None
    seconds: float = 0.0
    pid: int = 0
    processes: tuple[Process, ...] = ()
    environment: tuple[str, ...] = ()
    stdout_tail: str = ""
    stderr_tail: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is a trace of this very execution to judge."""
        return not self.problem


def run_recorded(
    command: str | Sequence[str],
    *,
    out: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    settings: Settings | None = None,
    rank: int | None = None,
    overwrite: bool = False,
    stop: threading.Event | None = None,
) -> Execution:
    """Run a command to its end in a fresh process, recorded; whatever fails is told, not raised.

    Nothing is read from stdin; stdout and stderr go to files beside the trace. A command that
    fails, hangs, trains nothing, or leaves a trace of another execution has a `problem`.

    Args:
        command: Words, or a text that is split into words as a shell does (no shell runs): a
            script, ``-m module`` or any command that starts Python, as for ``tp-record``.
        out: The trace to write; a folder where several processes train.
        cwd: Where the command runs; None for the current folder.
        env: Variables to add to our own environment.
        timeout: Seconds after which the command and all that it started are ended.
        settings: What to record; None for the default.
        rank: The rank where no launcher says it.
        overwrite: Whether ``out`` may be replaced.
        stop: Set by another thread to end the command.

    Raises:
        TraceExistsError: ``out`` exists and may not be replaced.
        OSError: The files cannot be written.
    """
    words = tuple(shlex.split(command) if isinstance(command, str) else command)
    added = dict(env or {})
    out = out.absolute()
    make_ready(out, overwrite=overwrite)
    run = _Run(words, out, cwd, added, Order(words, out, settings or Settings(), rank=rank))
    return run.execute(timeout, stop or threading.Event())


def run_plain(
    command: Sequence[str],
    *,
    out: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    stop: threading.Event | None = None,
) -> Execution:
    """Run a command as `run_recorded` does, but without the recorder.

    Args:
        command: Its words.
        out: Where a trace would be; names the logs beside it.
        cwd: Where the command runs; None for the current folder.
        env: Variables to add to our own environment.
        timeout: Seconds after which the command and all that it started are ended.
        stop: Set by another thread to end the command.

    Raises:
        OSError: The files cannot be written.
    """
    run = _Run(tuple(command), out.absolute(), cwd, dict(env or {}), None)
    return run.execute(timeout, stop or threading.Event())


class _Run:
    """One execution under way."""

    def __init__(
        self,
        words: tuple[str, ...],
        out: Path,
        cwd: Path | None,
        added: Mapping[str, str],
        order: Order | None,
    ) -> None:
        self._words = words
        self._out = out
        self._cwd = cwd
        self._added = added
        self._order = order
        self._logs = log_files(out)
        self._session = uuid.uuid4().hex

    def execute(self, timeout: float | None, stop: threading.Event) -> Execution:
        """Run, and say what came of it."""
        for log in self._logs:
            log.write_bytes(b"")
        if not self._words:
            return self._result("the command is empty")
        environment = {**os.environ, **self._added}
        try:
            command = command_of(self._words, self._cwd, environment.get("PATH"))
        except LaunchError as error:
            return self._result(str(error))
        with tempfile.NamedTemporaryFile(prefix="traceparity-") as attached:
            told = self._told(environment, attached.name)
            began = time.perf_counter()
            try:
                group = ProcessGroup(command, cwd=self._cwd, environment=told, logs=self._logs)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                return self._result(f"{self._words[0]} cannot be run: {reason}")
            try:
                ended, cut = self._await(group, timeout, stop)
                # Asked while it runs: what still records then is cut off by us.
                unfinished = self._finish(ended)
            finally:
                group.end()
            seconds = time.perf_counter() - began
            anyone = bool(os.path.getsize(attached.name))
        status = exit_status(ended)
        self._finish(ended)
        problem = cut or _failed(status) or next(iter(unfinished), "")
        processes: tuple[Process, ...] = ()
        if self._order and not problem:
            problem, processes = self._evidence(anyone=anyone)
        return self._result(problem, status, seconds, group.pid, processes)

    def _told(self, environment: Mapping[str, str], attached: str) -> dict[str, str]:
        if self._order is None:
            return with_boot(environment)
        return recording_environment(self._order, environment, self._session, attached)

    def _await(
        self, group: ProcessGroup, timeout: float | None, stop: threading.Event
    ) -> tuple[int, str]:
        """How the command ended, and why where it did not end by itself."""
        ended = group.wait(timeout, stop)
        if ended is not None:
            return ended, ""
        return group.end(), INTERRUPTED if stop.is_set() else f"it took longer than {timeout:g} s"

    def _finish(self, ended: int) -> list[str]:
        return finish_traces(self._out, exit_status(ended)) if self._order else []

    def _evidence(self, *, anyone: bool) -> tuple[str, tuple[Process, ...]]:
        """What is wrong with the traces, and who wrote them."""
        if not trace_files(self._out):
            return why_nothing(self._out, anyone=anyone), ()
        try:
            traces = open_run(self._out)
        except TraceError as error:
            return str(error), ()
        processes = []
        for trace in traces.values():
            with trace:
                fault = ended_by(trace)
            if fault:
                # The command may have ended well all the same, as a shell script does.
                return f"the training ended by an error: {fault}", ()
            if trace.header.session != self._session:
                return f"{trace.path} is not of this execution", ()
            processes.append(_process(trace.header.process))
        return "", tuple(processes)

    def _result(
        self,
        problem: str,
        status: int | None = None,
        seconds: float = 0.0,
        pid: int = 0,
        processes: tuple[Process, ...] = (),
    ) -> Execution:
        stdout, stderr = self._logs
        return Execution(
            command=self._words,
            trace=self._out,
            stdout=stdout,
            stderr=stderr,
            problem=problem,
            status=status,
            seconds=seconds,
            pid=pid,
            processes=processes,
            environment=tuple(sorted(name for name in self._added if name != END_STATE)),
            stdout_tail=tail(stdout),
            stderr_tail=tail(stderr),
        )


def _failed(status: int) -> str:
    return f"{FAILED} {status}" if status else ""


def _process(facts: Mapping[str, object]) -> Process:
    pid, started = facts.get("pid", 0), facts.get("started", 0.0)
    return Process(
        host=str(facts.get("host", "")),
        pid=pid if isinstance(pid, int) else 0,
        started=started if isinstance(started, float) else 0.0,
    )


def log_files(out: Path) -> tuple[Path, Path]:
    """Where stdout and stderr of an execution go, beside its trace."""
    return out.with_name(f"{out.stem}.stdout.log"), out.with_name(f"{out.stem}.stderr.log")


def tail(log: Path) -> str:
    """The last lines of a log, at most 8 KiB, as plain text.

    Bytes that are no text are replaced; what steers a terminal is left out, since a report must
    not do what a program asks of one.
    """
    with log.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _TAIL_BYTES))
        text = _STEERING.sub("", stream.read().decode(errors="replace"))
    return "\n".join(text.splitlines()[-TAIL_LINES:])
