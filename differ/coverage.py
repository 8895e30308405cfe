"""Coverage: whether the samples that a run saw satisfy the declared rule, over all ranks."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from traceparity.differ.coverage_report import CoverageReport, ScopeReport
from traceparity.differ.coverage_scope import MOST_VIOLATIONS, ScopeJudge, Violation
from traceparity.differ.expected_samples import ExpectedSamples, UnknownUniverse
from traceparity.differ.policy import Coverage
from traceparity.differ.run_ranks import by_rank
from traceparity.differ.sample_collector import CollectedScope, Ranks, SampleCollector
from traceparity.differ.sample_ids import SampleIds
from traceparity.differ.unseen import left_out, not_in_view
from traceparity.tracefmt.records import Columns, Phase

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

_MOST_KEPT = 10 * MOST_VIOLATIONS


def judge_coverage(
    segments: Sequence[Mapping[int, "Trace"]],
    coverage: Coverage,
    *,
    reference: Mapping[int, "Trace"] | None = None,
    resumed: bool = False,
    cuts: Sequence[Mapping[int, int | None]] = (),
) -> CoverageReport:
    """Judge the samples of a run.

    Args:
        segments: The traces by rank, of each part of the run.
        coverage: The declared rule.
        reference: A run whose samples are the expected ones where nothing else tells them.
        resumed: Whether the run goes on from a checkpoint, so that its first epoch may have begun
            before.
        cuts: For each segment but the last the step of each rank from which on its steps were
            done again by the next one.

    Raises:
        TraceError: A trace cannot be used.
    """
    audit = CoverageAudit(coverage, reference=reference, resumed=resumed)
    for number, segment in enumerate(segments):
        ranks = by_rank(segment)
        cut = cuts[number] if number < len(cuts) else {}
        audit.begin_segment(ranks, last=number == len(segments) - 1)
        for step, rank in steps_with_data(ranks):
            end = cut.get(rank)
            if end is None or step < end:
                for columns in ranks[rank].parts(step):
                    audit.take(rank, step, columns)
                audit.end_step(rank, step)
    return audit.report()


def steps_with_data(ranks: Ranks) -> Iterator[tuple[int, int]]:
    """Each step in which anything of a loader was seen, with its rank; in a step rank by rank."""
    each = (
        [(entry.number, rank) for entry in trace.steps if entry.observations[Phase.DATA]]
        for rank, trace in ranks.items()
    )
    return heapq.merge(*each)


class CoverageAudit:
    """Takes the chunks of a run in order, and says in the end what its samples come to."""

    def __init__(
        self,
        coverage: Coverage,
        *,
        reference: Mapping[int, "Trace"] | None = None,
        resumed: bool = False,
    ) -> None:
        self._coverage = coverage
        self._ids = SampleIds()
        self._expected = ExpectedSamples(coverage, self._ids, reference)
        self._resumed = resumed
        self._collector = SampleCollector(coverage, self._ids, self._judge)
        self._ranks: Ranks = {}
        self._unseen: list[str] = []
        self._violations: list[Violation] = []
        self._total = 0
        self._scopes: list[ScopeReport] = []

    def begin_segment(self, ranks: Ranks, *, last: bool = True) -> None:
        """The run, or its next part, is read from these traces."""
        self._ranks = ranks
        self._collector.begin_segment(ranks)
        self._unseen += [each.reason for each in not_in_view(ranks, last=last)]

    def take(self, rank: int, step: int, columns: Columns) -> None:
        """The next chunk of a step of a rank; steps in order, within a step rank by rank."""
        self._collector.take(rank, step, columns)

    def end_step(self, rank: int, step: int) -> None:
        """A step of a rank has no more chunks."""
        self._collector.end_step(rank, step)

    def report(self) -> CoverageReport:
        """What the samples come to; the run has no more steps."""
        self._collector.finish()
        doubts: dict[str, None] = {}
        if not self._scopes:
            doubts[left_out(self._ranks, self._coverage, has_ids=self._collector.has_ids)] = None
        doubts |= dict.fromkeys([*self._collector.doubts, *self._unseen])
        doubts |= dict.fromkeys(doubt for scope in self._scopes for doubt in scope.doubts)
        return CoverageReport(
            declared=self._coverage,
            violations=tuple(self._violations),
            violations_total=self._total,
            doubts=tuple(doubts),
            scopes=tuple(self._scopes),
        )

    def _judge(self, scope: CollectedScope) -> None:
        rule, doubts = self._coverage.policy, self._scope_doubts(scope)
        universe = None
        if rule != "no_cross_rank_overlap":
            try:
                universe = self._expected.of(scope)
            except UnknownUniverse as reason:
                if not scope.unknown:
                    doubts.append(f"which samples {scope.name} should have is unknown: {reason}")
        judge = ScopeJudge(scope.loader, scope.epoch, scope.samples, universe, scope.why_missing)
        whole = not (doubts or self._unseen or scope.open or self._began_before(scope))
        found = judge.judge(rule, self._coverage.padding, self._ids, whole=whole)
        if found.lacking and not (doubts or self._unseen):
            why = scope.open or "the run goes on from a checkpoint, so that it began in another"
            doubts.append(
                f"{found.lacking} {'sample' if found.lacking == 1 else 'samples'} of {scope.name} "
                f"cannot be called missing: {why}"
            )
        self._total += found.total
        if len(self._violations) < _MOST_KEPT:
            self._violations += found.violations
        self._scopes.append(
            ScopeReport(
                loader=scope.loader,
                epoch=scope.epoch,
                counts=found.counts,
                expected=universe.told if universe else "",
                violations=found.total,
                doubts=tuple(doubts),
            )
        )

    def _began_before(self, scope: CollectedScope) -> bool:
        return self._resumed and not scope.epoch

    def _scope_doubts(self, scope: CollectedScope) -> list[str]:
        return [
            f"the samples of {count} {'batch' if count == 1 else 'batches'} of {scope.name} are "
            f"unknown: {reason}"
            for reason, count in scope.unknown.items()
        ]
