"""The runner: judges the cases of a file, some at once, and puts their results together."""

import fnmatch
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from traceparity.differ.result import Outcome
from traceparity.tracefmt.errors import TraceparityError
from traceparity.verify.case import Case, CaseFile
from traceparity.verify.case_zoom import zoomed
from traceparity.verify.errors import CaseFileError, WorkFolderError
from traceparity.verify.golden import update
from traceparity.verify.kinds import JUDGES
from traceparity.verify.result import CaseResult, Verdict, VerifyResult
from traceparity.verify.stage import Ended, Stage
from traceparity.verify.work_folder import emptied, held


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
    halt = stop or threading.Event()
    root = file.path.parent

    def judge(case: Case) -> CaseResult:
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

    with held(work), ThreadPoolExecutor(max(1, jobs)) as pool:
        futures = [pool.submit(judge, case) for case in cases]
        try:
            results = tuple(future.result() for future in futures)
        except BaseException:
            # What runs must end before the pool does, and nothing more may begin.
            halt.set()
            pool.shutdown(cancel_futures=True)
            raise
    return VerifyResult(file.path, results)


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
