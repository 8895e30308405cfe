"""Judging many rows at once by their sketches, where only a relative distance is asked for."""

import numpy as np
import numpy.typing as npt

from traceparity.differ.metrics import ROUNDING, UPPER, widened
from traceparity.differ.sites import Ids
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import Mask
from traceparity.tracefmt.records import Kind


def surely_close(pair: StepPair, rows: Ids, target_rows: Ids) -> Mask:
    """Which pairs of rows satisfy their rule beyond doubt; the others need a closer look."""
    limits = pair.sites.sketch_limits
    if limits is None or not len(rows):
        return np.zeros(len(rows), np.bool_)
    limit = limits[pair.reference.site[rows]]
    left, right = pair.reference.columns, pair.target.columns
    usable = (
        ~np.isnan(limit)
        & (left.kind[rows] == Kind.TENSOR)
        & (right.kind[target_rows] == Kind.TENSOR)
        & (left.sketch_row[rows] >= 0)
        & (right.sketch_row[target_rows] >= 0)
        & (left.nonfinite[rows] == 0)
        & (right.nonfinite[target_rows] == 0)
        # Kept values are better evidence than a sketch.
        & ((left.value_offset[rows] < 0) | (right.value_offset[target_rows] < 0))
        & pair.types.same(left, rows, right, target_rows)
    )
    close = np.zeros(len(rows), np.bool_)
    chosen = np.flatnonzero(usable)
    sketches = widened(left.sketches[left.sketch_row[rows[chosen]]])
    sketches -= right.sketches[right.sketch_row[target_rows[chosen]]]
    norm, other_norm = left.stats[rows[chosen], 2], right.stats[target_rows[chosen], 2]
    close[chosen] = _upper_bounds(sketches, norm, other_norm) <= limit[chosen] * norm
    return close


def _upper_bounds(
    differences: npt.NDArray[np.float64],
    norm: npt.NDArray[np.float32],
    other_norm: npt.NDArray[np.float32],
) -> npt.NDArray[np.float64]:
    with np.errstate(all="ignore"):
        distance = np.linalg.norm(differences, axis=1)
        bounds: npt.NDArray[np.float64] = UPPER * distance + ROUNDING * (norm + other_norm)
    return bounds
