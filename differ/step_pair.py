"""Two aligned steps with all that is needed to compare them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from traceparity.differ.carry import Carry
from traceparity.differ.names import within
from traceparity.differ.observation import Observation
from traceparity.differ.policy import Policy
from traceparity.differ.step_view import Block, Steps, StepView, block_of
from traceparity.differ.types import TypeTable

if TYPE_CHECKING:
    from traceparity.differ.sites import JointSites
    from traceparity.tracefmt.reader import Trace


class Side:
    """One trace of a pair."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.carry = Carry(steps)

    @property
    def trace(self) -> "Trace":
        """The trace."""
        return self.steps.trace

    def partial(self, number: int) -> bool:
        """Whether rows of a step may lack: it was cut off, or the recorder lost observations."""
        if self.trace.complete:
            return False
        numbers, reason = self.steps.numbers, self.trace.incomplete_reason
        return "lost" in reason or "damaged" in reason or number == numbers[-1]

    def unreadable(self, component: str, field: str) -> bool:
        """Whether the recorder says that a value was there and could not be read."""
        said = "its gradient is " if field == "grad" else f"{field} is "
        return any(
            note.component == component and note.reason.startswith(said)
            for note in self.trace.not_observed
        )

    def blind(self, component: str) -> str:
        """Why the inside of a component was not observed; empty where it was."""
        for note in self.trace.not_observed:
            if within(component, note.component):
                return note.reason
        return ""


@dataclass(frozen=True)
class StepPair:
    """A step of the reference and the step of the target that answers it.

    Attributes:
        rank: Of which process.
        policy: The declared relation.
        sites: The joint table.
        reference_side: The reference's trace.
        target_side: The target's trace.
        reference_step: Number in the reference.
        target_step: Number in the target.
        types: The joint table of dtypes and shapes.
        equal_before: Whether all steps before are known to be equal from the beginning.
    """

    rank: int
    policy: Policy
    sites: "JointSites"
    reference_side: Side
    target_side: Side
    reference_step: int
    target_step: int
    types: TypeTable
    equal_before: bool

    @cached_property
    def reference(self) -> StepView:
        """The reference's rows."""
        return self.reference_side.steps[self.reference_step]

    @cached_property
    def target(self) -> StepView:
        """The target's rows."""
        return self.target_side.steps[self.target_step]

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks that either side has, in order."""
        sizes = [view.layout.block_sizes for view in (self.reference, self.target)]
        return [block_of(number) for number in sorted(sizes[0].keys() | sizes[1].keys())]

    @cached_property
    def same_digest_kind(self) -> bool:
        """Whether all digests of both traces are of one kind."""
        kinds = [side.trace.header.capture.get("digest") for side in self._sides]
        return bool(kinds[0] == kinds[1])

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.reference_side, self.target_side

    def comparable(self, reference: Observation, target: Observation) -> bool:
        """Whether the digests of two observations are of one kind."""
        if reference.digest_recipe != target.digest_recipe:
            return False
        if self.same_digest_kind or not (reference.is_tensor and target.is_tensor):
            return True
        kinds = [
            digest_kind(side.trace.header.capture, seen.device)
            for side, seen in zip(self._sides, (reference, target), strict=True)
        ]
        return kinds[0] == kinds[1]


def digest_kind(capture: Mapping[str, Any], device: str) -> str:
    """The kind of digest that a trace has of tensors on a device."""
    kinds = capture.get("digest", "")
    if isinstance(kinds, Mapping):
        kinds = kinds.get(device, kinds.get(device.partition(":")[0], ""))
    return str(kinds)
