"""The verdict on one run: what it shows by itself, and what it breaks of what good runs keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from traceparity.differ.check import CheckResult, check_error, check_run
from traceparity.differ.policy import Policy
from traceparity.differ.result import Outcome
from traceparity.invariants.invariant import Invariant
from traceparity.invariants.result import InvariantsResult, JudgedRun


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """All that was found in one run.

    Attributes:
        outcome: The verdict.
        reason: What it rests on, in one sentence.
        check: Samples and non-finite values.
        invariants: Invariants learned from other runs; None where none were given.
    """

    outcome: Outcome
    reason: str
    check: CheckResult
    invariants: InvariantsResult | None = None


def judge_run(
    targets: Sequence[Path],
    policy: Policy,
    *,
    finite: bool = True,
    invariants: Sequence[Invariant] = (),
    file: Path | None = None,
) -> RunVerdict:
    """Judge a run, in one segment or several.

    Args:
        targets: The segments in order: each a trace or a folder with one for each process.
        policy: What is declared of it.
        finite: Whether non-finite values are violations.
        invariants: What good runs keep.
        file: Where the invariants are from; None where there are none.

    Raises:
        TraceError: A trace cannot be used.
    """
    if file is None:
        check = check_run(targets, policy, finite=finite)
        return RunVerdict(check.outcome, check.reason, check)
    judged = JudgedRun(invariants, file)
    check = check_run(targets, policy, finite=finite, watchers=[judged])
    learned = judged.result()
    outcome, reason = _verdict(learned)
    if not (finite or policy.coverage):
        # Nothing else was asked for, so that there is nothing to abstain from.
        return RunVerdict(outcome, reason, check, learned)
    failed = Outcome.FAIL in (outcome, check.outcome)
    for wanted in (Outcome.FAIL, Outcome.ABSTAIN) if not failed else (Outcome.FAIL,):
        said = [
            text
            for each, text in ((outcome, reason), (check.outcome, check.reason))
            if each is wanted
        ]
        if said:
            return RunVerdict(wanted, "; ".join(said), check, learned)
    return RunVerdict(Outcome.PASS, f"{reason}; {check.reason}", check, learned)


def verdict_on_error(reason: str, targets: Sequence[Path], policy: Policy) -> RunVerdict:
    """The verdict where a trace, a policy or a file of invariants cannot be read."""
    return RunVerdict(Outcome.ERROR, reason, check_error(reason, targets, policy))


def _verdict(learned: InvariantsResult) -> tuple[Outcome, str]:
    total, exercised = len(learned.coverage), learned.exercised
    if learned.causes:
        return Outcome.FAIL, _broken(learned)
    if not exercised:
        reason = learned.coverage[0].reason if learned.coverage else "the file is empty"
        return Outcome.ABSTAIN, f"none of {total} invariants could be judged: {reason}"
    if learned.unseen:
        return Outcome.ABSTAIN, (
            f"{len(learned.unseen)} of {total} invariants could not be judged: "
            f"{learned.unseen[0].reason}; record the run without these options"
        )
    accepted = sum(learned.accepted.values())
    more = f" ({accepted:,} accepted deviations)" if accepted else ""
    what = f"{exercised} of {total} invariants" if exercised < total else f"all {total} invariants"
    if exercised < total:
        return Outcome.PASS, f"{what} were exercised, and hold{more}"
    return Outcome.PASS, f"{what} hold{more}"


def _broken(learned: InvariantsResult) -> str:
    first = learned.causes[0].first
    rank = f" of rank {first.rank}" if first.rank else ""
    others = len(learned.causes) - 1
    more = f", and {others} more {'cause' if others == 1 else 'causes'}" if others else ""
    return f"step {first.step}{rank} breaks what holds in good runs: {first.sentence}{more}"
