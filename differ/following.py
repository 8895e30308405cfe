"""Comparing a reference with a run that is still going on, each step as it comes."""

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from traceparity.differ.accumulation import Accumulation
from traceparity.differ.errors import AlignmentError
from traceparity.differ.holders import numbered_alike, successors, with_renames
from traceparity.differ.one_sided_step import one_sided_step
from traceparity.differ.policy import Policy
from traceparity.differ.result import Divergence
from traceparity.differ.sites import JointSites
from traceparity.differ.step_judge import StepJudge
from traceparity.differ.step_pair import Side
from traceparity.differ.step_view import FIRST_BATCH, Steps
from traceparity.differ.steps import has_training, is_windowed, step_offset
from traceparity.differ.types import TypeTable
from traceparity.tracefmt.records import Phase, StepEntry

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


class FollowingDiff:
    """The comparison of one rank whose target grows.

    A step costs the same however many came before.
    A divergence that it tells of is one of the finished trace as well. What it cannot tell, a step
    that lacks at the end say, only the comparison of the finished traces can.
    """

    def __init__(self, rank: int, reference: "Trace", target: "Trace", policy: Policy) -> None:
        """Take both traces.

        Args:
            rank: Of which process.
            reference: The reference, as it was archived.
            target: The target, of which the last step in ``steps`` may be unfinished.
            policy: The declared relation.
        """
        self._rank = rank
        self._traces = reference, target
        self._policy = policy
        self._known_tables: tuple[int, ...] = ()
        self._joined: Accumulation | None = None
        self._known_steps = 0
        self._equal_before = True
        self._identical: StepEntry | None = None

    def judge(self, number: int) -> Divergence | None:
        """The first divergence of a step of the target from the step that answers it, if any.

        Steps are judged in order. The last step of the target may be judged before it is finished,
        and then once more; where micro-batches are put together it waits until it is finished.

        Raises:
            AlignmentError: It cannot be found out which step of the reference answers.
        """
        judge = self._judge_now()
        answer = number + self._offset
        theirs, ours = judge.target.steps.entries[number], judge.reference.steps.entries.get(answer)
        if theirs.tail:
            return None
        if ours is None or (ours.tail and not has_training(ours)):
            return self._unanswered(theirs)
        finished = number != judge.target.steps.numbers[-1]
        miscount = None
        if self._joined is not None:
            if not finished:
                return None
            miscount = self._joined.miscount(answer)
        if not miscount and (theirs == self._identical or judge.equal_by_index(answer, number)):
            return None
        optimizer = Phase.OPTIMIZER
        if not finished and theirs.observations[optimizer] < ours.observations[optimizer]:
            # Another optimizer of this update may follow, and change what the update used.
            return None
        report = judge.compare(answer, number, equal_before=self._equal_before)
        if miscount:
            found = miscount.divergence(self._rank, FIRST_BATCH)
            report.add_before_batches(replace(found, target_step=number))
        if report.identical:
            self._identical = theirs
        elif finished:
            self._equal_before = False
        return report.first

    def _judge_now(self) -> StepJudge:
        """The judge, who knows all sites and steps that there are by now."""
        steps, known = self._traces[1].steps, self._known_steps
        self._known_steps = len(steps)
        tables = self._tables()
        if self._known_tables != tables:
            self._known_tables = tables
            self.__dict__.pop("_judge", None)
        else:
            # The last step that was known may have got more.
            news = steps[max(known - 1, 0) :]
            self._judge.target.steps.extend(news)
            if self._joined is not None:
                self._joined.extend(news)
        return self._judge

    def _tables(self) -> tuple[int, ...]:
        """How much of the target's tables has come; what is made of them is made anew then."""
        target = self._traces[1]
        accumulates = self._policy.align.kind == "accumulation"
        # What is put together gets shapes of its own, numbered after those of the trace.
        return len(target.sites), len(target.shapes) if accumulates else 0

    @cached_property
    def _judge(self) -> StepJudge:
        judge = self._judge_by(self._policy)
        sides = judge.reference, judge.target
        if self._policy.align.kind != "resume" or numbered_alike(*sides):
            return judge
        pairs = successors(*sides, step_offset(*sides, self._policy).step)
        return self._judge_by(with_renames(self._policy, pairs)) if pairs else judge

    def _judge_by(self, policy: Policy) -> StepJudge:
        reference, target = self._traces
        sites = JointSites(reference.sites, target.sites, policy, reference.noise)
        if policy.align.kind == "accumulation":
            offset = policy.align.step_offset or 0
            joined = Accumulation(reference, target, sites, policy, offset, whole=False)
            if undeclared := joined.undeclared():
                raise AlignmentError(undeclared)
            self._joined = joined
            reference, target, policy = joined.reference, joined.target, joined.policy
        return StepJudge(
            self._rank,
            policy,
            sites,
            Side(Steps(reference, sites, sites.reference, policy)),
            Side(Steps(target, sites, sites.target, policy)),
            TypeTable(reference, target),
        )

    @cached_property
    def _offset(self) -> int:
        sides = self._judge.reference, self._judge.target
        offset = step_offset(*sides, self._policy).step
        firsts = [side.steps.numbers[:1] for side in sides]
        self._equal_before = firsts[0] == [number + offset for number in firsts[1]]
        return offset

    def _unanswered(self, entry: StepEntry) -> Divergence | None:
        reference = self._judge.reference
        last = max(
            (step.number for step in reference.trace.steps[-2:] if has_training(step)), default=-1
        )
        beyond = entry.number + self._offset > last
        if (
            beyond and has_training(entry)
            and reference.trace.complete and not is_windowed(reference)
        ):  # fmt: skip
            return one_sided_step(self._rank, entry, self._offset, in_target=True)
        return None
