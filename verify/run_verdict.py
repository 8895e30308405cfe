"""The verdict on one run: what it shows by itself, and what it breaks of what good runs keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from traceparity.differ.check import CheckResult, check_error, check_run
from traceparity.differ.policy import Policy
from traceparity.differ.result import Outcome
from traceparity.invariants.groups import StepGroups
from traceparity.invariants.invariant import Invariant
from traceparity.invariants.laws.choice import LawChoice
from traceparity.invariants.laws.result import Advice, JudgedByLaws, LawsResult
from traceparity.invariants.result import InvariantsResult, JudgedRun
from traceparity.tracefmt.location import Location
from traceparity.verify.law_verdict import law_verdict


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """All that was found in one run.

    Attributes:
        outcome: The verdict.
        reason: What it rests on, in one sentence.
        check: Samples and non-finite values.
        invariants: Invariants learned from other runs; None where none were given.
        laws: Built-in laws that were declared; None where none were.
        advice: Built-in laws that decide nothing; None where none were asked for.
    """

    outcome: Outcome
    reason: str
    check: CheckResult
    invariants: InvariantsResult | None = None
    laws: LawsResult | None = None
    advice: LawsResult | None = None


def judge_run(
    targets: Sequence[Location],
    policy: Policy,
    *,
    finite: bool = True,
    invariants: Sequence[Invariant] = (),
    file: Path | None = None,
    laws: LawChoice | None = None,
) -> RunVerdict:
    """Judge a run, in one segment or several.

    Args:
        targets: The segments in order: each a trace or a folder with one for each process.
        policy: What is declared of it.
        finite: Whether non-finite values are violations.
        invariants: What good runs keep.
        file: Where the invariants are from; None where there are none.
        laws: Built-in laws that decide or advise.

    Raises:
        TraceError: A trace cannot be used.
    """
    laws = laws or LawChoice()
    learning = JudgedRun(invariants, file) if file is not None else None
    declaring = JudgedByLaws(laws.declared) if laws.declared else None
    advising = Advice(laws.advised) if laws.advised else None
    judges = [each for each in (learning, declaring, advising) if each is not None]
    groups = StepGroups(judges)
    check = check_run(targets, policy, finite=finite, watchers=[groups] if judges else [])
    groups.end()
    declared = declaring.result() if declaring else None
    learned = learning.result() if learning else None
    parts: list[tuple[Outcome, str]] = []
    if declared is not None:
        parts.append(law_verdict(declared, laws.named))
    if learned is not None:
        parts.append(_verdict(learned))
    if finite or policy.coverage or not parts:
        # Where something else was asked for and this was not, there is nothing to abstain from.
        parts.append((check.outcome, check.reason))
    advice = advising.result() if advising else None
    return RunVerdict(*_joined(parts), check, learned, declared, advice)


def _joined(parts: Sequence[tuple[Outcome, str]]) -> tuple[Outcome, str]:
    """The verdict of all parts: a violation decides, then evidence that is missing."""
    for wanted in (Outcome.FAIL, Outcome.ABSTAIN):
        said = [reason for outcome, reason in parts if outcome is wanted]
        if said:
            return wanted, "; ".join(said)
    return Outcome.PASS, "; ".join(reason for _, reason in parts)


def verdict_on_error(reason: str, targets: Sequence[Location], policy: Policy) -> RunVerdict:
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
            f"{learned.unseen[0].reason}; {learned.unseen[0].remedy}"
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
