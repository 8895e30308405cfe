"""Judging one run by itself: the samples that it saw, and values that are not finite."""

import contextlib
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from traceparity.differ.nonfinite import MOST_PLACES, NonFinite, NonFiniteAudit
from traceparity.differ.policy import Policy
from traceparity.differ.result import NotSeen, Outcome, RunSummary
from traceparity.differ.run_ranks import by_rank
from traceparity.differ.unseen import Lack, Unseen, not_in_view
from traceparity.tracefmt.codec import join_columns
from traceparity.tracefmt.location import Location
from traceparity.tracefmt.records import Columns, Phase

if TYPE_CHECKING:
    from traceparity.differ.coverage import CoverageAudit
    from traceparity.differ.coverage_report import CoverageReport
    from traceparity.tracefmt.reader import Trace

Ranks = Mapping[int, "Trace"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All that a check of one run found.

    Attributes:
        outcome: The verdict.
        reason: What it rests on, in one sentence.
        target: The run.
        policy: What was declared; only its coverage and its ignored sites matter to one run.
        coverage: What the samples come to; None where no coverage is declared.
        violations: The first places with non-finite values.
        violations_total: How many there are.
        not_observed: What the recorder could not see.
        notes: What a reader should know beside the verdict.
    """

    outcome: Outcome
    reason: str
    target: RunSummary
    policy: Policy = field(default_factory=Policy)
    coverage: "CoverageReport | None" = None
    violations: tuple[NonFinite, ...] = ()
    violations_total: int = 0
    not_observed: tuple[NotSeen, ...] = ()
    notes: tuple[str, ...] = ()


class StepWatcher(Protocol):
    """Sees all steps of a run too, while they are read for the check."""

    def begin_segment(self, ranks: Ranks) -> None:
        """What follows is read from these traces."""
        ...

    def step(self, rank: int, number: int, columns: Columns) -> None:
        """The next step of a process; in a step rank by rank."""
        ...


def check_run(
    targets: Sequence[Location],
    policy: Policy,
    *,
    finite: bool = True,
    watchers: Sequence[StepWatcher] = (),
) -> CheckResult:
    """Judge a run, in one segment or several.

    Args:
        targets: The segments in order: each a trace or a folder with one for each process.
        policy: What is declared of it.
        finite: Whether non-finite values are violations.
        watchers: See all steps too, so that each is read once.

    Raises:
        TraceError: A trace cannot be used.
    """
    from traceparity.tracefmt.reader import open_run

    with contextlib.ExitStack() as stack:
        segments: list[Ranks] = []
        for target in targets:
            run = open_run(target)
            for trace in run.values():
                stack.enter_context(trace)
            segments.append(by_rank(run))
        check = _Check(segments, policy, finite=finite, watchers=watchers)
        return check.result(" ".join(map(str, targets)))


def check_error(reason: str, targets: Sequence[Location], policy: Policy) -> CheckResult:
    """The result where a trace or policy cannot be read."""
    target = RunSummary(" ".join(map(str, targets)))
    return CheckResult(Outcome.ERROR, reason, target, policy)


class _Check:
    """One walk over all steps, in order, that everything judged sees."""

    def __init__(
        self,
        segments: Sequence[Ranks],
        policy: Policy,
        *,
        finite: bool,
        watchers: Sequence[StepWatcher],
    ) -> None:
        self._segments = segments
        self._watchers = watchers
        self._policy = policy
        self._finite = NonFiniteAudit(policy) if finite else None
        self._audit = _audit_of(policy)
        self._unseen: list[Unseen] = []

    def result(self, path: str) -> CheckResult:
        """Judge the run."""
        for number, ranks in enumerate(self._segments):
            last = number == len(self._segments) - 1
            self._unseen += not_in_view(ranks, last=last)
            cuts = {} if last else _cuts(ranks, self._segments[number + 1])
            self._walk(ranks, cuts, last=last)
        coverage = self._audit.report() if self._audit else None
        outcome, reason = self._verdict(coverage)
        traces = [trace for ranks in self._segments for trace in ranks.values()]
        return CheckResult(
            outcome=outcome,
            reason=reason,
            target=RunSummary(
                path=path,
                ranks=len(self._segments[0]),
                steps=sum(max(len(each.steps) for each in run.values()) for run in self._segments),
                complete=all(trace.complete for trace in traces),
                content_digest=" ".join(trace.content_digest for trace in traces),
            ),
            policy=self._policy,
            coverage=coverage,
            violations=tuple(self._finite.first[:MOST_PLACES]) if self._finite else (),
            violations_total=self._finite.total if self._finite else 0,
            not_observed=_not_observed(traces),
            notes=tuple(self._notes()),
        )

    def _walk(self, ranks: Ranks, cuts: Mapping[int, int | None], *, last: bool) -> None:
        finite, audit = self._finite, self._audit
        if finite:
            finite.begin_segment()
        if audit:
            audit.begin_segment(ranks, last=last)
        for watcher in self._watchers:
            watcher.begin_segment(ranks)
        steps = (
            [(entry.number, rank, bool(entry.observations[Phase.DATA])) for entry in trace.steps]
            for rank, trace in ranks.items()
        )
        for step, rank, has_data in heapq.merge(*steps):
            trace, cut = ranks[rank], cuts.get(rank)
            sampled = audit if has_data and (cut is None or step < cut) else None
            if not (finite or sampled or self._watchers):
                continue
            parts = []
            for columns in trace.parts(step):
                if self._watchers:
                    parts.append(columns)
                if finite:
                    finite.take(rank, trace, columns)
                if sampled:
                    sampled.take(rank, step, columns)
            if finite:
                finite.end_step(rank, trace, step)
            if sampled:
                sampled.end_step(rank, step)
            for watcher in self._watchers:
                watcher.step(rank, step, join_columns(parts))

    def _verdict(self, coverage: "CoverageReport | None") -> tuple[Outcome, str]:
        finite, covered = self._finite, _said(coverage) if coverage else ""
        failed = []
        if finite and finite.total:
            failed.append(_nonfinite_sentence(finite.first[0], finite.total))
        if coverage and coverage.outcome is Outcome.FAIL:
            failed.append(covered)
        if failed:
            return Outcome.FAIL, "; ".join(failed)
        if coverage and coverage.outcome is Outcome.ABSTAIN:
            return Outcome.ABSTAIN, covered
        if not coverage and not (finite and finite.judged):
            return Outcome.ABSTAIN, _nothing_judged(finite)
        if self._incomplete:
            return Outcome.ABSTAIN, self._incomplete[0]
        passed = []
        if finite and finite.judged:
            passed.append(f"{finite.judged:,} tensors are finite where they should be")
        if coverage:
            passed.append(covered)
        return Outcome.PASS, "; ".join(passed)

    @property
    def _incomplete(self) -> list[str]:
        # The file of one rank was chosen by the user; a folder is to hold all of them.
        several = len(self._segments[0]) > 1
        decisive = {Lack.END, Lack.RANKS} if several else {Lack.END}
        return [each.reason for each in self._unseen if each.lack in decisive]

    def _notes(self) -> list[str]:
        reasons = dict.fromkeys(each.reason for each in self._unseen)
        notes = [reason for reason in reasons if reason not in self._incomplete]
        if self._finite and self._finite.masks:
            notes.append(
                f"{self._finite.masks:,} tensors of batches, inputs, outputs or buffers hold "
                "infinities alone, as masks do"
            )
        if self._finite and self._finite.left_out:
            notes.append(
                f"{self._finite.left_out:,} gradients were not finite in updates that the gradient "
                "scaler left out"
            )
        return notes


def _nonfinite_sentence(first: NonFinite, total: int) -> str:
    name = f"{first.phase}:{first.component}:{first.field}"
    count = first.seen.nonfinite
    rank = f" on rank {first.rank}" if first.rank else ""
    more = f" (the first of {total:,} places)" if total > 1 else ""
    values = "value" if count == 1 else "values"
    return f"{name} has {count:,} non-finite {values} in step {first.step}{rank}{more}"


def _cuts(before: Ranks, after: Ranks) -> dict[int, int | None]:
    # Late, as are other parts that take long to import and are seldom asked for.
    from traceparity.differ.segments import cuts_between

    return cuts_between(before, after)


def _audit_of(policy: Policy) -> "CoverageAudit | None":
    if policy.coverage is None:
        return None
    from traceparity.differ.coverage import CoverageAudit

    return CoverageAudit(policy.coverage)


def _said(coverage: "CoverageReport") -> str:
    from traceparity.differ import coverage_text

    return coverage_text.reason(coverage)


def _nothing_judged(finite: NonFiniteAudit | None) -> str:
    if finite is None:
        return "nothing was judged: no coverage is declared and non-finite values are allowed"
    return "nothing was judged: the trace holds no tensors of inexact numbers that decide"


def _not_observed(traces: Sequence["Trace"]) -> tuple[NotSeen, ...]:
    seen = {
        NotSeen("target", note.component, note.reason): None
        for trace in traces
        for note in trace.not_observed
    }
    return tuple(seen)
