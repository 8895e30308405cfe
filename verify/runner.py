"""The runner: judges the cases of a file, some at once, and puts their results together.

Whatever ends it early, what was judged by then is told, and what was not is told to be so.
"""

import fnmatch
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from traceparity.differ.result import Outcome
from traceparity.tracefmt.errors import TraceparityError
from traceparity.verify.case import Case, CaseFile
from traceparity.verify.case_zoom import zoomed
from traceparity.verify.errors import CaseFileError, WorkFolderError
from traceparity.verify.execution import INTERRUPTED
from traceparity.verify.golden import update
from traceparity.verify.kinds import JUDGES
from traceparity.verify.process_group import LONGEST_END
from traceparity.verify.result import CaseResult, Verdict, VerifyResult
from traceparity.verify.stage import Ended, Stage
from traceparity.verify.work_folder import emptied, held

_LOOK = 0.1
"""Seconds between two looks at whether all is to end."""


def chosen(file: CaseFile, patterns: Sequence[str]) -> CaseFile:
    """The file with those of its cases that a name or glob chooses; all without any.

    Raises:
        CaseFileError: A pattern chooses none.
    """
    if not patterns:
        return file
    wanted: set[str] = set()
    names = [case.name for case in file.cases]
    for pattern in patterns:
        # A name may hold brackets, which a glob would read as something else.
        found = {name for name in names if name == pattern or fnmatch.fnmatchcase(name, pattern)}
        if not found:
            raise CaseFileError(f"{file.path}: no case {pattern!r}; there are {', '.join(names)}")
        wanted |= found
    return CaseFile(file.path, tuple(case for case in file.cases if case.name in wanted))


def run_cases(
    file: CaseFile,
    *,
    work: Path,
    jobs: int = 1,
    updating: bool = False,
    zooming: bool = False,
    stop: threading.Event | None = None,
    told: Callable[[Case, CaseResult | None], None] | None = None,
) -> VerifyResult:
    """Judge the cases of a file.

    Args:
        file: The cases.
        work: Where they write: a folder of this use alone.
        jobs: How many run at once.
        updating: Whether to rewrite archived references instead of judging; cases without one
            are left out.
        zooming: Whether to run what diverges again, recorded ever more closely.
        stop: Set by another thread to end what runs.
        told: Called, from any thread, when a case begins and, with its result, when it ends.

    Raises:
        CaseFileError: There is nothing to update.
        WorkFolderError: The work folder cannot be used.
    """
    cases = [case for case in file.cases if case.archive] if updating else list(file.cases)
    if not cases:
        raise CaseFileError(f"{file.path}: no case has an archived reference to update")
    if updating:
        _see_that_none_is_updated_twice(file.path, cases)
    halt = stop or threading.Event()
    root = file.path.parent

    def judge(case: Case) -> CaseResult:
        if halt.is_set():
            return _interrupted(case, "before it began")
        if told:
            told(case, None)
        try:
            folder = emptied(work / case.folder_name)
        except WorkFolderError as error:
            # The other cases keep their results.
            result = CaseResult(case.name, case.kind, Verdict(Outcome.ERROR, str(error)), (), 0.0)
        else:
            stage = Stage(case, root, folder, halt)
            result = _judged(stage, updating=updating, zooming=zooming)
        if told:
            told(case, result)
        return result

    with held(work):
        results = _all_judged(cases, judge, max(1, jobs), halt)
    return VerifyResult(file.path, results, interrupted=halt.is_set())


def _see_that_none_is_updated_twice(path: Path, cases: Sequence[Case]) -> None:
    updated: dict[object, str] = {}
    for case in cases:
        if case.archive is None:
            continue
        trace = case.archive.trace
        place = trace.resolve() if isinstance(trace, Path) else trace
        if other := updated.get(place):
            raise CaseFileError(
                f"{path}: {other!r} and {case.name!r} would both write {trace};"
                f" name one of them: tp-verify --update {path} {shlex.quote(other)}"
            )
        updated[place] = case.name


def _all_judged(
    cases: Sequence[Case], judge: Callable[[Case], CaseResult], jobs: int, halt: threading.Event
) -> tuple[CaseResult, ...]:
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = [pool.submit(judge, case) for case in cases]
        _wait(futures, halt)
    except BaseException:
        # What runs must end before we do, and nothing more may begin.
        halt.set()
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown(wait=not halt.is_set(), cancel_futures=True)
    return tuple(map(_result, cases, futures))


def _wait(futures: Sequence[Future[CaseResult]], halt: threading.Event) -> None:
    """Wait for all cases, or, once they are to end, for as long as their commands may take to."""
    while not halt.is_set() and wait(futures, _LOOK).not_done:
        pass
    if halt.is_set():
        for future in futures:
            future.cancel()
        # A long comparison is not waited for: nothing of it outlives us.
        wait(futures, LONGEST_END)


def _result(case: Case, future: Future[CaseResult]) -> CaseResult:
    """The result of a case, which may never have come to one."""
    if future.done() and not future.cancelled():
        return future.result()
    begun = not future.cancelled()
    return _interrupted(case, "while recordings were compared" if begun else "before it began")


def _interrupted(case: Case, when: str) -> CaseResult:
    return CaseResult(case.name, case.kind, Verdict(Outcome.ERROR, f"interrupted {when}"))


def _judged(stage: Stage, *, updating: bool, zooming: bool) -> CaseResult:
    began = time.perf_counter()
    updated = None
    try:
        if updating:
            verdict, updated = update(stage)
        else:
            verdict = JUDGES[stage.case.kind](stage)
            verdict = zoomed(stage, verdict) if zooming else verdict
    except Ended as end:
        verdict = end.verdict
        if cut := [play.role for play in stage.played if play.execution.problem == INTERRUPTED]:
            verdict = Verdict(Outcome.ERROR, f"interrupted while {cut[-1]} ran")
    except TraceparityError as error:
        verdict = Verdict(Outcome.ERROR, str(error))
    return CaseResult(
        name=stage.case.name,
        kind=stage.case.kind,
        verdict=verdict,
        played=tuple(stage.played),
        seconds=time.perf_counter() - began,
        updated=updated,
    )
