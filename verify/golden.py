"""Golden traces: archived references, rewritten when a change of the numbers was meant."""

import os
import shutil
import uuid
from pathlib import Path

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy
from traceparity.differ.result import DiffResult, Outcome
from traceparity.verify.case import Case
from traceparity.verify.reference import made_elsewhere
from traceparity.verify.result import Verdict
from traceparity.verify.stage import Ended, Stage


def update(stage: Stage) -> tuple[Verdict, Path | None]:
    """Record the archived reference anew, say what changed, and replace it where anything did.

    Returns:
        The verdict, PASS where the archive is now what the command records, and the trace that
        was rewritten, if it was.

    Raises:
        Ended: Nothing was recorded; the archive is untouched.
    """
    archive = stage.case.archive
    if archive is None:
        raise Ended(Verdict(Outcome.ERROR, "the case has no archived reference"))
    new = stage.run(_role(stage.case))
    if not archive.trace.exists():
        _replace(archive.trace, new)
        return Verdict(Outcome.PASS, f"{archive.trace} is new"), archive.trace
    result = diff_runs(archive.trace, [new], Policy())
    elsewhere = made_elsewhere(archive.trace, new)
    if result.outcome is Outcome.PASS and not elsewhere:
        return Verdict(Outcome.PASS, f"{archive.trace} is up to date"), None
    _replace(archive.trace, new)
    reason = f"{archive.trace} was rewritten: {_change(result)}"
    return Verdict(Outcome.PASS, reason, result, elsewhere=elsewhere), archive.trace


def _change(result: DiffResult) -> str:
    if result.outcome is Outcome.PASS:
        return "the same numbers, recorded elsewhere"
    return result.reason


def _role(case: Case) -> str:
    """The command that records what the archive should hold."""
    if "reference" in case.commands:
        return "reference"
    if case.kind == "compare":
        return "target"
    reason = (
        "nothing says how its reference is recorded;"
        " write reference = { trace = ..., command = ... }"
    )
    raise Ended(Verdict(Outcome.ERROR, reason))


def _replace(old: Path, new: Path) -> None:
    """Put a copy in place of the old trace, which is there until the copy is whole."""
    beside = old.with_name(f".{old.name}.{uuid.uuid4().hex}")
    try:
        old.parent.mkdir(parents=True, exist_ok=True)
        if new.is_dir():
            shutil.copytree(new, beside)
        else:
            shutil.copyfile(new, beside)
        if old.is_dir():
            shutil.rmtree(old)
        elif old.exists() and new.is_dir():
            old.unlink()
        os.replace(beside, old)
    except OSError as error:
        reason = f"{old} cannot be rewritten: {error.strerror or error}"
        raise Ended(Verdict(Outcome.ERROR, reason)) from error
