"""Matching the rows of a block: which row of the target answers which of the reference."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceparity.differ.sequence import common_subsequence
from traceparity.differ.sites import Ids
from traceparity.differ.step_view import StepView

_CALL_BITS = 32
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Matches:
    """How two sets of rows correspond.

    Attributes:
        reference: Matched rows of the reference.
        target: The row of the target that answers each of them.
        missing: Rows that only the reference has.
        extra: Rows that only the target has.
        extra_place: For each of ``extra``, the reference row after which it belongs; -1 for none.
    """

    reference: Ids
    target: Ids
    missing: Ids
    extra: Ids
    extra_place: Ids


def match_rows(
    reference: StepView, rows: Ids, target: StepView, target_rows: Ids, *, sequence: bool
) -> Matches:
    """Match rows by site and call; where a sequence does not agree, by its longest common part."""
    left, right = _keys(reference, rows), _keys(target, target_rows)
    if len(left) == len(right) and bool((left == right).all()):
        return Matches(rows, target_rows, _NONE, _NONE, _NONE)
    if sequence and not _same_multiset(left, right):
        first, second = _by_sequence(left, right)
    else:
        first, second = _by_key(left, right)
    return _matches(rows, target_rows, first, second)


def _keys(view: StepView, rows: Ids) -> Ids:
    return (view.site[rows] << _CALL_BITS) | view.columns.call[rows].astype(np.int64)


def _same_multiset(left: Ids, right: Ids) -> bool:
    return len(left) == len(right) and bool((np.sort(left) == np.sort(right)).all())


def _by_key(left: Ids, right: Ids) -> tuple[Ids, Ids]:
    """Pairs of equal keys; the n-th of a repeated key answers the n-th."""
    paired_left = _with_occurrence(left)
    paired_right = _with_occurrence(right)
    _, first, second = np.intersect1d(
        paired_left, paired_right, assume_unique=True, return_indices=True
    )
    order = np.argsort(first)
    return first[order], second[order]


def _with_occurrence(keys: Ids) -> npt.NDArray[np.void] | Ids:
    """The keys, made unique by how often each was seen before."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    if len(starts) == len(keys):
        return keys
    seen = np.arange(len(keys)) - np.repeat(starts, np.diff(np.r_[starts, len(keys)]))
    # Calls of one micro-batch never come near the upper half of their 32 bits.
    unique = np.empty(len(keys), np.int64)
    unique[order] = ordered + (seen << (_CALL_BITS - 8))
    return unique


def _by_sequence(left: Ids, right: Ids) -> tuple[Ids, Ids]:
    sites, others = (left >> _CALL_BITS), (right >> _CALL_BITS)
    pairs = common_subsequence(sites.tolist(), others.tolist())
    first = np.array([i for i, _ in pairs], np.int64)
    second = np.array([j for _, j in pairs], np.int64)
    rest_left = np.setdiff1d(np.arange(len(left)), first)
    rest_right = np.setdiff1d(np.arange(len(right)), second)
    # What moved is matched by its key: a mere order of independent modules is no difference.
    moved_left, moved_right = _by_key(left[rest_left], right[rest_right])
    first = np.r_[first, rest_left[moved_left]]
    second = np.r_[second, rest_right[moved_right]]
    order = np.argsort(first)
    return first[order], second[order]


def _matches(rows: Ids, target_rows: Ids, first: Ids, second: Ids) -> Matches:
    missing = np.delete(rows, first)
    left_over = np.setdiff1d(np.arange(len(target_rows)), second)
    answers = np.full(len(target_rows), -1, np.int64)
    answers[second] = rows[first]
    matched_before = np.maximum.accumulate(np.where(answers >= 0, np.arange(len(answers)), -1))
    place = np.where(matched_before >= 0, answers[matched_before], -1)
    return Matches(
        rows[first], target_rows[second], missing, target_rows[left_over], place[left_over]
    )
