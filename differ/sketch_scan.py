"""Judging many rows at once by their sketches, where only a relative distance is asked for."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from traceparity.differ.sites import Ids
from traceparity.differ.sketch_distance import ROUNDING, UPPER
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import Mask, stretch
from traceparity.tracefmt.records import SKETCH_WIDTH, Columns, Kind

Limits = npt.NDArray[np.float64]
_AT_ONCE = 256
"""Rows whose sketches are compared at once: what they need then stays in the cache."""
_SINGLE = 1 + 1e-5
"""What a sum of 61 squares in single precision may lack of the true one, and more."""
_VANISHED = np.float32(1e-36)
"""More than the squares that are too small for single precision come to."""


def surely_close(pair: StepPair, rows: Ids, target_rows: Ids) -> Mask:
    """Which pairs of rows satisfy their rule beyond doubt; the others need a closer look."""
    return within_limits(pair, rows, target_rows, scan_limits(pair, rows, target_rows))


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


def within_limits(pair: StepPair, rows: Ids, target_rows: Ids, limit: Limits) -> Mask:
    """Which pairs of rows are nearer than their limit beyond doubt, by their sketches."""
    left, right = pair.reference.columns, pair.target.columns
    mine, theirs = stretch(rows), stretch(target_rows)
    usable = ~np.isnan(limit)
    if usable.any():
        usable &= np.minimum(left.sketch_row[mine], right.sketch_row[theirs]) >= 0
        usable &= (left.nonfinite[mine] | right.nonfinite[theirs]) == 0
        # Kept values are better evidence than a sketch.
        usable &= np.minimum(left.value_offset[mine], right.value_offset[theirs]) < 0
    if usable.all():
        return _are_near(left, rows, right, target_rows, limit)
    close = np.zeros(len(rows), np.bool_)
    if usable.any():
        chosen = rows[usable], target_rows[usable]
        close[usable] = _are_near(left, chosen[0], right, chosen[1], limit[usable])
    return close


def _are_near(left: Columns, rows: Ids, right: Columns, target_rows: Ids, limit: Limits) -> Mask:
    stats, other_stats = left.stats[stretch(rows)], right.stats[stretch(target_rows)]
    norm = stats[:, 2].astype(np.float64)
    allowed = limit * norm
    with np.errstate(all="ignore"):
        noise = ROUNDING * (norm + other_stats[:, 2])
        bounds = UPPER * _distances(left, rows, right, target_rows) + noise
        # Elements that cancel in a sketch show in the extremes and in the norm.
        apart = np.abs(stats - other_stats)
        is_far: Mask = (apart > allowed[:, None]).any(axis=1)
        # The norm of huge elements is infinite: it says nothing.
        is_near: Mask = (bounds <= allowed) & np.isfinite(allowed) & ~is_far
    return is_near


def _distances(
    left: Columns, rows: Ids, right: Columns, target_rows: Ids
) -> npt.NDArray[np.float64]:
    """The distance of each pair of sketches; never less than it is, and by little more.

    Single precision suffices, as the difference of two singles is exact but for its last bit: no
    small distance of large sketches is lost.
    """
    squares = np.empty(len(rows), np.float32)
    mine = _parts(left, rows)
    theirs = _parts(right, target_rows)
    apart = np.empty((min(len(rows), _AT_ONCE), SKETCH_WIDTH), np.float32)
    for start, ours, others in zip(range(0, len(rows), _AT_ONCE), mine, theirs, strict=True):
        part = apart[: len(ours)]
        np.subtract(ours, others, out=part)
        np.einsum("ij,ij->i", part, part, out=squares[start : start + len(part)])
    return np.sqrt((squares + _VANISHED).astype(np.float64)) * _SINGLE


def _parts(columns: Columns, rows: Ids) -> Iterator[npt.NDArray[np.float32]]:
    """The sketches of rows, some at once; not copied where they follow one another."""
    index = stretch(columns.sketch_row[stretch(rows)])
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        if isinstance(index, slice):
            yield columns.sketches[index][part]
        else:
            yield columns.sketches[index[part]]
