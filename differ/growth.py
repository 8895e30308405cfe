"""How far two runs are apart at a step: the loss, and the parameters after the update."""

import math

import numpy as np

from traceparity.differ.metrics import widened
from traceparity.differ.observation import Observation
from traceparity.differ.result import GrowthPoint
from traceparity.differ.sketch_distance import sketch_distance
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Kind, Phase


def growth_point(pair: StepPair) -> GrowthPoint:
    """The distance of the runs at a pair of steps."""
    losses = _loss(pair.reference), _loss(pair.target)
    loss = None if losses[0] is None or losses[1] is None else (losses[0], losses[1])
    return GrowthPoint(pair.reference_step, loss, _parameters(pair))


def _loss(view: StepView) -> float | None:
    rows = np.flatnonzero((view.phase == Phase.LOSS) & ~view.context)
    if not len(rows):
        return None
    array = view.observation(int(rows[-1])).array()
    if array is None or array.size != 1 or array.dtype.kind == "c":
        return None
    return float(widened(array).reshape(()))


def _distance(reference: Observation, target: Observation) -> float | None:
    """From the values where both are kept, as small ones always are; else from the sketches."""
    left, right = reference.array(), target.array()
    if left is not None and right is not None and left.shape == right.shape:
        return float(np.linalg.norm((widened(left) - widened(right)).ravel()))
    distance = sketch_distance(reference, target)
    return None if distance is None else distance.value


def _parameters(pair: StepPair) -> float | None:
    """Distance of all parameters after the update, relative to the reference's norm."""
    left, right = (
        view.last_rows(
            (view.phase == Phase.OPTIMIZER) & view.stateful & (view.columns.kind == Kind.TENSOR)
        )
        for view in (pair.reference, pair.target)
    )
    apart = size = 0.0
    for thing in left.keys() & right.keys():
        if pair.sites.things[thing][1] != "value":
            continue
        reference = pair.reference.observation(left[thing])
        target = pair.target.observation(right[thing])
        size += reference.norm**2
        if reference.digest == target.digest:
            continue
        distance = _distance(reference, target)
        if distance is None:
            return None
        apart += distance**2
    return math.sqrt(apart / size) if size > 0 and math.isfinite(apart) else None
