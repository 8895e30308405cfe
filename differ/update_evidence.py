"""Evidence for what happens between the backward passes and the update: what came too often.

Zeroing, clipping and the schedule belong once to an update; done once a micro-batch, or in another
order, they change it.
"""

import math
from collections.abc import Iterator

import numpy as np

from traceparity.differ.metrics import widened
from traceparity.differ.moment import told_now
from traceparity.differ.names import optimizer_state_parameter, scheduler_of
from traceparity.differ.observation import Observation
from traceparity.differ.result import Evidence
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Phase

_NEAR = 1e-3


def zeroing(pair: StepPair) -> Iterator[Evidence]:
    """Gradients that were zeroed after a backward pass and before the update."""
    for name in _fields(pair, "zero_grad"):
        number = pair.sites.number(Phase.GRADIENT, "zero_grad", name)
        counts = [
            sum(_backward_begins(view) < row < _update_begins(view) for row in rows)
            for view in (pair.reference, pair.target)
            for rows in [view.rows(Phase.GRADIENT, number)]
        ]
        if counts[0] != counts[1]:
            times = [_times(count) for count in counts]
            detail = (
                f"zero_grad of {name} came between a backward pass of this step and its update "
                f"{times[0]} in the reference, {times[1]} in the target"
            )
            yield Evidence("zero_grad", False, detail)


def schedule_steps(pair: StepPair) -> Iterator[Evidence]:
    """How often each scheduler stepped in this step."""
    for scheduler in dict.fromkeys(scheduler_of(name) for name, _ in pair.sites.things):
        number = pair.sites.number(Phase.SCHEDULER, f"{scheduler}.last_epoch", "value")
        if not scheduler or number is None:
            continue
        rows = [view.rows(Phase.SCHEDULER, number) for view in (pair.reference, pair.target)]
        if len(rows[0]) == len(rows[1]):
            continue
        detail = (
            f"{scheduler} stepped {_times(len(rows[0]))} in this step of the reference, "
            f"{_times(len(rows[1]))} in the target"
        )
        early = sum(row < _update_begins(pair.target) for row in rows[1])
        if early:
            detail += f", {early} of them before the optimizer did"
        yield Evidence("schedule", False, detail)


def update_counts(pair: StepPair, parameter: str) -> Iterator[Evidence]:
    """How many updates of a parameter the optimizer counts, where the sides count otherwise.

    Then the update began with other state: it was lost, or loaded, after the step before.
    """
    for name, field in pair.sites.things:
        if optimizer_state_parameter(name, field) != parameter or not field.startswith("step["):
            continue
        ours, theirs = (number_of(seen) for seen in told_now(pair, Phase.OPTIMIZER, name, field))
        if ours is not None and theirs is not None and abs(ours - theirs) >= 1:
            detail = (
                f"{name} counts {ours:g} updates of {parameter} after this one in the "
                f"reference, {theirs:g} in the target: its state was not the same before"
            )
            yield Evidence("optimizer_state", False, detail)


def clipped_while_scaled(pair: StepPair) -> Iterator[Evidence]:
    """A norm that is as many times the other one as the gradient scaler multiplies with."""
    norms = told_now(pair, Phase.GRADIENT, "clip_grad_norm_", "total_norm")
    reference, target = (number_of(seen) for seen in norms)
    if not reference or not target or not math.isfinite(target / reference):
        return
    for name, side, step, ratio in (
        ("target", pair.target_side, pair.target_step, target / reference),
        ("reference", pair.reference_side, pair.reference_step, reference / target),
    ):
        scale = _scale(pair, side, step)
        if scale and scale != 1 and abs(ratio / scale - 1) < _NEAR:
            detail = (
                f"clip_grad_norm_ in the {name} was given gradients that were still scaled: their "
                f"norm is {scale:g} times the other one, as much as the gradient scaler's scale"
            )
            yield Evidence("scaler", False, detail)
            return


def _scale(pair: StepPair, side: Side, step: int) -> float | None:
    """What the gradient scaler multiplied with in a step."""
    thing = pair.sites.thing("scaler.scale", "value")
    places = side.carry.find([thing], step + 1).places if thing is not None else {}
    return number_of(side.carry.observation(places[thing])) if thing in places else None


def number_of(seen: Observation | None) -> float | None:
    """The single number that an observation is; None where it is none, or was not kept."""
    if seen is None:
        return None
    if not seen.is_tensor:
        return float(seen.plain) if isinstance(seen.plain, int | float) else None
    array = seen.array()
    if array is None or array.size != 1 or array.dtype.kind == "c":
        return None
    return float(widened(array).reshape(()))


def _fields(pair: StepPair, component: str) -> list[str]:
    return [field for name, field in pair.sites.things if name == component]


def _backward_begins(view: StepView) -> int:
    rows = np.flatnonzero(view.phase == Phase.LOSS)
    return int(rows[0]) if len(rows) else len(view)


def _update_begins(view: StepView) -> int:
    rows = np.flatnonzero(view.phase == Phase.OPTIMIZER)
    return int(rows[0]) if len(rows) else len(view)


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")
