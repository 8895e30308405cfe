"""Rows of two steps that answer one another in order: found once for all steps of one layout."""

from dataclasses import dataclass

from traceparity.differ.sites import Ids
from traceparity.differ.sketch_scan import Limits, scan_limits
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import Index, Layout, stretch


@dataclass(frozen=True, slots=True)
class RowPairs:
    """The rows that decide, each with the row that answers it.

    Attributes:
        reference: Rows of the reference.
        target: The row of the target that answers each.
        mine: Index for all of ``reference``.
        theirs: Index for all of ``target``.
        block: Number of the block of each.
        limit: See `scan_limits`.
    """

    reference: Ids
    target: Ids
    mine: Index
    theirs: Index
    block: Ids
    limit: Limits


def row_pairs(pair: StepPair) -> RowPairs | None:
    """The pairs of rows of two steps; None where they do not answer one another in order."""
    left, right = pair.reference.layout, pair.target.layout
    known = left.partner
    if known is None or known[0] is not right:
        known = left.partner = right, _row_pairs(pair, left, right)
    pairs = known[1]
    return pairs if isinstance(pairs, RowPairs) else None


def _row_pairs(pair: StepPair, left: Layout, right: Layout) -> RowPairs | None:
    rows, target_rows = left.judged_rows, right.judged_rows
    in_order = len(rows) == len(target_rows) and all(
        bool((mine[rows] == theirs[target_rows]).all())
        for mine, theirs in (
            (left.site, right.site),
            (left.block, right.block),
            (left.stateful, right.stateful),
            (left.call, right.call),
        )
    )
    if not in_order:
        return None
    limit = scan_limits(pair, rows, target_rows)
    return RowPairs(rows, target_rows, stretch(rows), stretch(target_rows), left.block[rows], limit)
