"""Comparing the two traces of one rank, step by step."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from traceparity.differ.accumulation import Accumulation
from traceparity.differ.beginning import Beginning
from traceparity.differ.ending import ending
from traceparity.differ.errors import AlignmentError
from traceparity.differ.evaluations import (
    difference_note,
    has_evaluations,
    judging_evaluations,
)
from traceparity.differ.evidence import evidence_for
from traceparity.differ.growth import growth_point
from traceparity.differ.holders import successors, with_renames
from traceparity.differ.lone_stillness import LoneStillness
from traceparity.differ.observation import without_bulk
from traceparity.differ.one_sided_step import one_sided_step
from traceparity.differ.rank_task import RankTask
from traceparity.differ.result import Compared, Divergence, GrowthPoint
from traceparity.differ.settings_evidence import root_class
from traceparity.differ.sites import JointSites
from traceparity.differ.step_diff import StepReport
from traceparity.differ.step_judge import StepJudge
from traceparity.differ.step_pair import Side
from traceparity.differ.step_view import FIRST_BATCH, Steps
from traceparity.differ.steps import StepAlignment, align_steps, is_windowed, step_offset
from traceparity.differ.stillness import Stillness
from traceparity.differ.types import TypeTable
from traceparity.tracefmt.reader import Trace
from traceparity.tracefmt.records import Phase, StepEntry

MOST_DIVERGENCES = 100
"""Diverging steps after which the comparison ends: the first one is what counts."""

_SHOWN = 3


@dataclass(slots=True)
class RankReport:
    """What came out of one rank.

    Attributes:
        alignment: The steps that were lined up; None where that failed.
        compared: Counts.
        divergences: The first divergence of each diverging step.
        growth: How far the runs are apart at diverging steps.
        abstain: Reasons why the declared relation cannot be judged.
        notes: What a reader should know beside the verdict.
        declared: Phases that the policy compares.
        phases: Phases of which anything was compared.
        undecided: Sites that could not be judged, with their step.
        unused: Declarations that are about nothing in the traces.
    """

    alignment: StepAlignment | None = None
    compared: Compared = field(default_factory=Compared)
    divergences: list[Divergence] = field(default_factory=list)
    growth: list[GrowthPoint] = field(default_factory=list)
    abstain: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)
    phases: set[str] = field(default_factory=set)
    undecided: list[tuple[int, str]] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)


class RankDiff:
    """The comparison of two traces of one rank."""

    def __init__(self, task: RankTask) -> None:
        """Take what is to be compared."""
        self._task = task
        self._policy = policy = task.policy
        self._sites = JointSites(
            task.reference.sites, task.target.sites, policy, task.reference.noise
        )
        self._accumulation: Accumulation | None = None
        self._take_sides(task.reference, task.target)
        self._stillness = Stillness()
        self._unmatched: dict[str, None] = {}
        self._report = RankReport(
            compared=Compared(ranks=1),
            declared=set(policy.align.phases),
            unused=self._sites.unused(),
        )
        self._phases = [Phase[name.upper()] for name in policy.align.phases]

    def _take_sides(self, reference: Trace, target: Trace) -> None:
        policy, sites = self._policy, self._sites
        self._reference = Side(Steps(reference, sites, sites.reference, policy))
        self._target = Side(Steps(target, sites, sites.target, policy))
        types = TypeTable(reference, target)
        self._judge = StepJudge(
            self._task.rank, policy, sites, self._reference, self._target, types
        )

    def _line_up(self) -> StepAlignment:
        """Line up the steps; under accumulation their micro-batches are put together from here on.

        Raises:
            AlignmentError: They do not line up, or nothing says how.
        """
        task = self._task
        begins = step_offset(
            self._reference, self._target, self._policy, task.expected, goes_on=task.goes_on
        )
        if task.goes_on or self._policy.align.kind == "resume":
            begins = self._number_alike(begins)
        if self._policy.align.kind == "accumulation":
            whole = task.expect_end and not task.goes_on
            joined = self._accumulation = Accumulation(
                self._reference.trace, self._target.trace, self._sites, self._policy, begins.step,
                whole=whole,
            )  # fmt: skip
            if undeclared := joined.undeclared():
                raise AlignmentError(undeclared)
            self._policy = joined.policy
            self._take_sides(joined.reference, joined.target)
        if begins.doubt and not task.goes_on:
            self._report.notes.append(begins.warning)
        return align_steps(self._reference, self._target, begins)

    def _number_alike(self, begins: Beginning) -> Beginning:
        """Call optimizers and schedulers of the reference what a resumed target calls them."""
        pairs = successors(self._reference, self._target, begins.step)
        if not pairs:
            return begins
        reference, target = self._task.reference, self._task.target
        theirs = {entry.site.component for entry in target.sites}
        self._policy = with_renames(self._policy, pairs)
        self._sites = JointSites(reference.sites, target.sites, self._policy, reference.noise)
        self._take_sides(reference, target)
        shown = [f"{old} is the target's {new}" for old, new in pairs if new in theirs]
        named = ", ".join(shown)
        self._report.notes.append(f"in the reference, {named}")
        # Counters that had other names may have spoken for another step.
        task = self._task
        again = step_offset(
            self._reference, self._target, self._policy, task.expected, goes_on=task.goes_on
        )
        return again if again.step == begins.step else begins

    def run(self) -> RankReport:
        """Compare all aligned steps, until too many of them diverge."""
        report = self._report
        try:
            alignment = self._line_up()
        except AlignmentError as error:
            report.abstain.append(str(error))
            return report
        if not self._task.expect_end:
            alignment = self._without_last_part(alignment)
        report.alignment = alignment
        for step_report in self._unequal_steps(alignment):
            self._take(step_report)
            if len(report.divergences) >= MOST_DIVERGENCES:
                report.notes.append(
                    f"only the first {MOST_DIVERGENCES} diverging steps were compared"
                )
                break
        else:
            self._judge_ends(alignment)
            self._judge_stillness(alignment)
            has_parameters = "optimizer" in self._policy.align.phases and not self._accumulation
            reference = self._task.reference if has_parameters else None
            report.notes += self._stillness.notes(reference)
            self._look_at_evaluations(alignment)
        if self._accumulation:
            report.notes += self._accumulation.notes()
            report.abstain += self._accumulation.undecided()
        if self._unmatched:
            report.notes.append(_allowed(list(self._unmatched)))
        return report

    def _unequal_steps(self, alignment: StepAlignment) -> Iterator[StepReport]:
        equal_before = self._begin_together(alignment)
        for number, target_number in alignment.pairs:
            self._stillness.take(self._reference.steps.entries[number])
            miscount = self._accumulation and self._accumulation.miscount(number)
            if not miscount and self._judge.equal_by_index(number, target_number):
                # The index of a damaged file is no evidence of what the file holds.
                self._reference.trace.verify_step(number)
                self._target.trace.verify_step(target_number)
                self._skip(self._reference.steps.entries[number])
                continue
            step_report = self._judge.compare(number, target_number, equal_before=equal_before)
            if miscount:
                found = miscount.divergence(self._task.rank, FIRST_BATCH)
                step_report.add_before_batches(replace(found, target_step=target_number))
            equal_before = equal_before and step_report.identical
            yield step_report

    def _look_at_evaluations(self, alignment: StepAlignment) -> None:
        """Say where evaluations differ, if all that decides is satisfied."""
        traces = self._reference.trace, self._target.trace
        if self._report.divergences or self._policy.align.evaluation == "compare":
            return
        if any(has_evaluations(trace) for trace in traces):
            self._policy = judging_evaluations(self._policy)
            self._take_sides(*traces)
            if note := difference_note(self._judge, alignment.pairs):
                self._report.notes.append(note)

    def _skip(self, entry: StepEntry) -> None:
        """Count a step that the index shows to be equal."""
        seen = [phase for phase in self._phases if any(entry.phase_digests[phase])]
        skipped = sum(entry.observations[phase] for phase in seen)
        self._report.compared.add(Compared(steps=1, observations=skipped, skipped_equal=skipped))
        self._report.phases.update(phase.label for phase in seen)

    def _without_last_part(self, alignment: StepAlignment) -> StepAlignment:
        """Without the step that a stopped segment did not finish; the next segment has it whole."""
        pairs = tuple(
            (number, target_number)
            for number, target_number in alignment.pairs
            if not self._target.steps.entries[target_number].tail
            and not self._target.partial(target_number)
        )
        return replace(alignment, pairs=pairs)

    def _begin_together(self, alignment: StepAlignment) -> bool:
        firsts = self._reference.steps.numbers[0], self._target.steps.numbers[0]
        return alignment.pairs[:1] == (firsts,)

    def _take(self, step_report: StepReport) -> None:
        report = self._report
        report.compared.add(step_report.compared)
        self._unmatched.update(dict.fromkeys(step_report.unmatched))
        report.phases |= step_report.phases
        step = step_report.pair.reference_step
        report.undecided += [(step, site) for site in step_report.undecided]
        if step_report.first is None:
            return
        divergence = step_report.first
        if not report.divergences and step_report.candidate is not None:
            found = evidence_for(step_report.pair, step_report.candidate, divergence)
            divergence = replace(
                divergence,
                evidence=divergence.evidence + tuple(found),
                root_class="" if divergence.component else root_class(step_report.pair),
            )
        report.divergences.append(
            replace(
                divergence,
                reference=without_bulk(divergence.reference),
                target=without_bulk(divergence.target),
            )
        )
        report.growth.append(growth_point(step_report.pair))

    def _judge_stillness(self, alignment: StepAlignment) -> None:
        """Whether one side alone trains nothing, which exact rules would have told."""
        if not self._policy.rules or "optimizer" not in self._policy.align.phases:
            return
        sides = self._reference, self._target
        lone = LoneStillness(self._task.rank, self._sites, *sides)
        if found := lone.find(alignment.pairs):
            self._report.divergences.append(found)

    def _judge_ends(self, alignment: StepAlignment) -> None:
        """What it means that one trace has steps that the other has not, or was cut off."""
        sides = ("reference", self._reference), ("target", self._target)
        self._report.notes += [
            each.detail for side in sides for each in ending(side[0], side[1].trace)
        ]
        one_sided = {"reference": alignment.reference_only, "target": alignment.target_only}
        for (name, side), (other_name, other) in (sides, sides[::-1]):
            steps = one_sided[name]
            if name == "reference" and not self._task.expect_end:
                continue
            if steps and is_windowed(other):
                self._report.notes.append(
                    f"the {other_name} was recorded with a choice of steps; "
                    f"{len(steps)} steps of the {name} have no counterpart"
                )
            elif steps and other.trace.complete:
                entry = side.steps.entries[steps[0]]
                found = one_sided_step(
                    self._task.rank, entry, alignment.offset, in_target=name == "target"
                )
                evidence = tuple(ending(other_name, other.trace))
                self._report.divergences.append(replace(found, evidence=evidence))
            if not other.trace.complete and (self._task.expect_end or other_name == "reference"):
                self._report.abstain.append(_cut_off(other_name, other))


def _allowed(sites: list[str]) -> str:
    more = f" and {len(sites) - _SHOWN} more" if len(sites) > _SHOWN else ""
    return f"sites of one side only, allowed by the policy: {', '.join(sites[:_SHOWN])}{more}"


def _cut_off(name: str, side: Side) -> str:
    numbers = side.steps.numbers
    last = f"after step {numbers[-1]}" if numbers else "before its first step"
    why = side.trace.incomplete_reason or "the recording did not end as it should"
    return f"the {name} ends {last} ({why})"
