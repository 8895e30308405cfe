"""Judging a step of one run by the step of another that answers it."""

from dataclasses import dataclass

from traceparity.differ.policy import PHASES, Policy
from traceparity.differ.sites import JointSites
from traceparity.differ.step_diff import StepReport, compare_steps
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.types import TypeTable
from traceparity.tracefmt.records import Phase


@dataclass(frozen=True)
class StepJudge:
    """What all pairs of steps of two traces have in common.

    Attributes:
        rank: Of which process.
        policy: The declared relation.
        sites: The joint table.
        reference: The reference's trace.
        target: The target's trace.
        types: The joint table of dtypes and shapes.
    """

    rank: int
    policy: Policy
    sites: JointSites
    reference: Side
    target: Side
    types: TypeTable

    def equal_by_index(self, number: int, target_number: int) -> bool:
        """Whether the index alone shows two steps to be equal under the policy."""
        align = self.policy.align
        if "compare" in (align.device, align.evaluation, align.rng) or align.rename:
            return False
        if self.sites.ignored.all():
            # The index would count what the policy leaves out: a pass without a comparison.
            return False
        captures = [side.trace.header.capture for side in (self.reference, self.target)]
        if captures[0].get("digest") != captures[1].get("digest"):
            return False
        digests = self.reference.steps.entries[number].phase_digests
        others = self.target.steps.entries[target_number].phase_digests
        if len(align.phases) == len(PHASES):
            return bool(digests == others)
        phases = [Phase[name.upper()] for name in align.phases]
        return all(digests[phase] == others[phase] for phase in phases)

    def compare(self, number: int, target_number: int, *, equal_before: bool) -> StepReport:
        """Compare two steps.

        Args:
            number: Step of the reference.
            target_number: Step of the target.
            equal_before: Whether all steps before are known to be equal from the beginning.
        """
        pair = StepPair(
            self.rank, self.policy, self.sites, self.reference, self.target,
            number, target_number, self.types, equal_before,
        )  # fmt: skip
        return compare_steps(pair)
