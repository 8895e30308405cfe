"""Golden traces: archived references, rewritten when a change of the numbers was meant."""

import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy
from traceparity.differ.result import Difference, DiffResult, Outcome
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
    old = archive.trace
    if not isinstance(old, Path):
        raise Ended(Verdict(Outcome.ERROR, f"{old} lies elsewhere; record it and put it there"))
    new = stage.run(_role(stage.case))
    try:
        renewal = renew(old, new)
    except OSError as error:
        reason = f"{old} cannot be rewritten: {error.strerror or error}"
        raise Ended(Verdict(Outcome.ERROR, reason)) from error
    verdict = Verdict(Outcome.PASS, renewal.reason, renewal.result, elsewhere=renewal.elsewhere)
    return verdict, old if renewal.changed else None


@dataclass(frozen=True, slots=True)
class Renewal:
    """What became of a golden trace.

    Attributes:
        changed: Whether it was written.
        reason: Why, in a sentence that begins with its path.
        result: How the new recording compares with the old one; None where nothing is to be told.
        elsewhere: How the places of both recordings differ in what changes numbers.
    """

    changed: bool
    reason: str
    result: DiffResult | None = None
    elsewhere: tuple[Difference, ...] = ()


def renew(golden: Path, new: Path) -> Renewal:
    """Put a new recording in the place of a golden trace, unless they are equal.

    Raises:
        TraceError: One of them cannot be read.
        OSError: The golden trace cannot be written; it is as it was.
    """
    if not golden.exists():
        _replace(golden, new)
        return Renewal(True, f"{golden} is new")
    result = diff_runs(golden, [new], Policy())
    elsewhere = made_elsewhere(golden, new)
    if result.outcome is Outcome.PASS and not elsewhere:
        return Renewal(False, f"{golden} is up to date")
    _replace(golden, new)
    return Renewal(True, f"{golden} was rewritten: {_change(result)}", result, elsewhere)


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
