"""Judging many rows at once by their sketches, where only a relative distance is asked for."""

import numpy as np
import numpy.typing as npt

from traceparity.differ.sites import Ids
from traceparity.differ.sketch_distance import ROUNDING, UPPER
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import Index, Mask, stretch
from traceparity.tracefmt.records import SKETCH_WIDTH, Columns, Kind

Sketches = npt.NDArray[np.float32]
Ids32 = npt.NDArray[np.int32]
Limits = npt.NDArray[np.float64]
_AT_ONCE = 1024
"""Rows whose sketches are compared at once: what they need then stays in the cache."""
_SINGLE = 1 + 1e-5
"""What a sum of 61 squares in single precision may lack of the true one, and more."""
_VANISHED = np.float32(1e-36)
"""More than the squares that are too small for single precision come to."""


def surely_close(pair: StepPair, rows: Ids, target_rows: Ids) -> Mask:
    """Which pairs of rows satisfy their rule beyond doubt; the others need a closer look."""
    limit = scan_limits(pair, rows, target_rows)
    return within_limits(pair, stretch(rows), stretch(target_rows), limit)


def scan_limits(pair: StepPair, rows: Ids, target_rows: Ids) -> Limits:
    """The largest relative distance of each pair of rows; NaN where something else is asked for.

    It depends on what the rows are and not on their values.
    """
    if pair.sites.sketch_limits is None:
        return np.full(len(rows), np.nan)
    left, right = pair.reference.columns, pair.target.columns
    limit = pair.sites.sketch_limits[pair.reference.site[rows]]
    usable = (
        (left.kind[rows] == Kind.TENSOR)
        & (right.kind[target_rows] == Kind.TENSOR)
        & pair.types.same(left, rows, right, target_rows)
        & pair.types.inexact(left, rows)
    )
    limit[~usable] = np.nan
    return limit


def within_limits(pair: StepPair, mine: Index, theirs: Index, limit: Limits) -> Mask:
    """Which pairs of rows are nearer than their limit beyond doubt, by their sketches."""
    left, right = pair.reference.columns, pair.target.columns
    usable = ~np.isnan(limit)
    if usable.any():
        usable &= np.minimum(left.sketch_row[mine], right.sketch_row[theirs]) >= 0
        usable &= (left.nonfinite[mine] | right.nonfinite[theirs]) == 0
        # Kept values are better evidence than a sketch.
        usable &= np.minimum(left.value_offset[mine], right.value_offset[theirs]) < 0
    if usable.all():
        return _are_near(left, mine, right, theirs, limit)
    close = np.zeros(len(limit), np.bool_)
    if usable.any():
        chosen = [_chosen(index, usable) for index in (mine, theirs)]
        close[usable] = _are_near(left, chosen[0], right, chosen[1], limit[usable])
    return close


def _chosen(index: Index, wanted: Mask) -> Index:
    places = np.flatnonzero(wanted)
    return stretch(places + index.start if isinstance(index, slice) else index[places])


def _are_near(left: Columns, mine: Index, right: Columns, theirs: Index, limit: Limits) -> Mask:
    stats, other_stats = left.stats[mine], right.stats[theirs]
    norm = stats[:, 2].astype(np.float64)
    allowed = limit * norm
    with np.errstate(all="ignore"):
        noise = ROUNDING * (norm + other_stats[:, 2])
        distances = _distances(
            left.sketches, left.sketch_row[mine], right.sketches, right.sketch_row[theirs]
        )
        bounds = UPPER * distances + noise
        # Elements that cancel in a sketch show in the extremes and in the norm.
        apart = np.abs(stats - other_stats)
        is_far: Mask = (apart > allowed[:, None]).any(axis=1)
        # The norm of huge elements is infinite: it says nothing.
        is_near: Mask = (bounds <= allowed) & np.isfinite(allowed) & ~is_far
    return is_near


def _distances(
    mine: Sketches, rows: Ids32, theirs: Sketches, target_rows: Ids32
) -> npt.NDArray[np.float64]:
    """The distance of each pair of sketches; never less than it is, and by little more.

    Single precision suffices, as the difference of two singles is exact but for its last bit: no
    small distance of large sketches is lost.
    """
    squares = np.empty(len(rows), np.float32)
    apart = np.empty((min(len(rows), _AT_ONCE), SKETCH_WIDTH), np.float32)
    index, target_index = stretch(rows), stretch(target_rows)
    for start in range(0, len(rows), _AT_ONCE):
        part = apart[: len(rows) - start]
        np.subtract(mine[_part(index, start)], theirs[_part(target_index, start)], out=part)
        np.einsum("ij,ij->i", part, part, out=squares[start : start + len(part)])
    return np.sqrt((squares + _VANISHED).astype(np.float64)) * _SINGLE


def _part(index: Index, start: int) -> Index:
    """Some of an index; of a slice a slice, which copies nothing."""
    if isinstance(index, slice):
        first = index.start + start
        return slice(first, min(first + _AT_ONCE, index.stop))
    return index[start : start + _AT_ONCE]
