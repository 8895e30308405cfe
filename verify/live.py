"""Live: judges look at each step of a run while it goes on, and may end it.

The recorded program takes no part in it: each update is in its trace file when
``optimizer.step()`` returns, and the process that waits for the program reads it there.

A judge is anything with a method ``judge``; `Live` asks for one for each process of the run.
"""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from traceparity.recorder.launch import say
from traceparity.recorder.output import trace_files
from traceparity.recorder.processes import stop
from traceparity.tracefmt.errors import TraceError, TraceparityError
from traceparity.tracefmt.growing import GrowingTrace, follow

POLL = 0.1
"""Seconds between two looks at the files."""
GRACE = 10.0
"""Seconds that a program has to end by itself when it was asked to."""


class Judge(Protocol):
    """Looks at the steps of one process, in order."""

    def judge(self, trace: GrowingTrace, number: int, *, finished: bool) -> str | None:
        """Judge a step.

        The last step of the trace is given as soon as its update is in the file, and once more
        when it is finished: rows may still come, so that what lacks is no fault before.

        Args:
            trace: The trace so far.
            number: The step.
            finished: Whether nothing more of the step will come.

        Returns:
            What is wrong with it, in a sentence for people; None where nothing is.

        Raises:
            TraceparityError: This process cannot be judged; the judge is not asked again.
        """


JudgeOf = Callable[[int, GrowingTrace], Judge | None]
"""The judge for a rank and its trace; None where there is nothing to judge it by."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a judge found.

    Attributes:
        rank: Of which process.
        step: The step of its trace.
        text: What is wrong, in a sentence.
    """

    rank: int
    step: int
    text: str


@dataclass(slots=True)
class _Followed:
    """One trace of the run; ``unfinished`` is the step that was judged before it was finished."""

    rank: int
    trace: GrowingTrace
    judges: list[Judge]
    unfinished: int | None = None

    def to_judge(self) -> list[int]:
        """The steps that are new or got more, and the one that is finished since they came."""
        numbers = self.trace.grow()
        before = self.unfinished
        if before is not None and before not in numbers and (numbers or self.trace.ended):
            numbers.insert(0, before)
        if numbers:
            self.unfinished = None if self.trace.ended else numbers[-1]
        return numbers


class Live:
    """Watches a run through the traces that it writes.

    Attributes:
        findings: What was found, the first of each judge and process.
        stopped: Whether the program was made to end.
    """

    def __init__(
        self,
        out: Path,
        judges: list[JudgeOf],
        *,
        stop_after: int | None,
        tell: Callable[[str], None] = say,
    ) -> None:
        """Prepare.

        Args:
            out: Where the run writes its trace, or its folder of traces.
            judges: What to judge it by.
            stop_after: How many steps the process in which something was found goes on before the
                program is ended; None lets it run.
            tell: Tells people a sentence.
        """
        self.findings: list[Finding] = []
        self.stopped = False
        self._out = out
        self._judges = judges
        self._stop_after = stop_after
        self._tell = tell
        self._followed: dict[int, _Followed] = {}

    def watch(self, program: subprocess.Popen[bytes], *, grace: float = GRACE) -> None:
        """Watch a program until it ends; make it end where a finding is to be the last thing.

        Whatever goes wrong here, the program goes on.
        """
        with self._telling():
            self._watch(program, grace)

    def finish(self) -> None:
        """Judge what came last, now that the traces have their index, and close the files."""
        with self._telling():
            self.look()
        self.close()

    def close(self) -> None:
        """Close the files."""
        for followed in self._followed.values():
            followed.trace.close()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the program must not suffer from its watcher
            self._tell(f"not judged any more while it runs: {type(error).__name__}: {error}")

    def _watch(self, program: subprocess.Popen[bytes], grace: float) -> None:
        while not self.stopped:
            ended = _ends_within(program, POLL)
            # What is in the files when the program has ended is all that there will be.
            self.look()
            if ended:
                return
            if self._stop_after is not None and self._went_on(self._stop_after):
                self._tell("the program is stopped")
                self.stopped = True
                stop(program, self._processes(), grace)

    def look(self) -> None:
        """Judge what was written since the last time."""
        for path in trace_files(self._out):
            followed = self._follow(path)
            if followed is None:
                continue
            try:
                numbers = followed.to_judge()
            except TraceparityError as error:
                self._tell(f"{error}; it is not judged any more while it runs")
                followed.judges.clear()
                continue
            for number in numbers:
                self._judge(followed, number)

    def _follow(self, path: Path) -> _Followed | None:
        """The trace at a path, which may have moved since it was found."""
        try:
            inode = path.stat().st_ino
            if inode not in self._followed:
                trace = follow(path)
                rank = 0 if path == self._out else _rank_of(path)
                made = [make(rank, trace) for make in self._judges]
                judges = [judge for judge in made if judge is not None]
                self._followed[inode] = _Followed(rank, trace, judges)
        except (OSError, TraceError):
            # It has just moved into a folder, or its first bytes are not there yet.
            return None
        return self._followed[inode]

    def _judge(self, followed: _Followed, number: int) -> None:
        trace = followed.trace
        finished = trace.ended or number != trace.steps[-1].number
        for judge in list(followed.judges):
            try:
                text = judge.judge(trace, number, finished=finished)
            except TraceparityError as error:
                self._tell(f"{error}; rank {followed.rank} is not judged while it runs")
                followed.judges.remove(judge)
                continue
            if text is not None:
                # What comes after it follows from it, and the report will tell.
                followed.judges.remove(judge)
                self.findings.append(Finding(followed.rank, number, text))
                self._tell(text)

    def _went_on(self, steps: int) -> bool:
        """Whether a process has gone on for so many steps after what was found in it."""
        newest = {
            followed.rank: followed.trace.steps[-1].number
            for followed in self._followed.values()
            if len(followed.trace.steps)
        }
        return any(newest[found.rank] >= found.step + steps for found in self.findings)

    def _processes(self) -> list[int]:
        headers = [followed.trace.header for followed in self._followed.values()]
        return [int(header.process.get("pid", 0)) for header in headers]


def _ends_within(program: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        program.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _rank_of(path: Path) -> int:
    """The rank that the name of a file in a folder says."""
    return int(path.stem.removeprefix("rank"))
