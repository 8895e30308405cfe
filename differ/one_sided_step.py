"""A step that only one of two runs has."""

from traceparity.differ.metrics import Metrics
from traceparity.differ.result import Divergence
from traceparity.differ.steps import first_phase
from traceparity.tracefmt.records import StepEntry


def one_sided_step(rank: int, entry: StepEntry, offset: int, *, in_target: bool) -> Divergence:
    """The divergence of a step that nothing answers.

    Args:
        rank: Of which process.
        entry: The step.
        offset: Reference step of the target's step 0.
        in_target: Whether it is the target that has the step.
    """
    return Divergence(
        rank=rank,
        step=entry.number + offset if in_target else entry.number,
        target_step=entry.number if in_target else entry.number - offset,
        microbatch=0,
        call=0,
        phase=first_phase(entry),
        component="",
        field="step",
        kind="extra" if in_target else "missing",
        reference=None,
        target=None,
        metrics=Metrics(),
    )
