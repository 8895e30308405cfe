"""Comparing two observations under a rule of the policy."""

import enum
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceparity.differ.metrics import largest_ulp, parts, pieces, widened
from traceparity.differ.norm import Norm
from traceparity.differ.observation import Observation
from traceparity.differ.policy import Rule
from traceparity.differ.sketch_distance import sketch_distance

Mask = npt.NDArray[np.bool_]
_HUGE = 2.0**600
"""Unit in which differences that overflow are measured."""


class Relation(enum.Enum):
    """What a rule says of two observations."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A relation, and what was missing where it is undecided."""

    relation: Relation
    needs: str = ""

    def __bool__(self) -> bool:
        return self.relation is Relation.EQUAL


EQUAL = Verdict(Relation.EQUAL)
DIFFERENT = Verdict(Relation.DIFFERENT)


def compare(
    rule: Rule, reference: Observation, target: Observation, *, same_digest_kind: bool = True
) -> Verdict:
    """Whether two observations satisfy a rule. Equal bits satisfy every rule.

    Args:
        rule: The rule.
        reference: The observation of the reference.
        target: The observation of the target.
        same_digest_kind: Whether the digests of both are of one kind and so can be compared.
    """
    if rule.ignore:
        return EQUAL
    if same_digest_kind and reference.digest == target.digest:
        return EQUAL
    if reference.kind != target.kind:
        return DIFFERENT
    if not reference.is_tensor:
        return _compare_plain(rule, reference.plain, target.plain)
    if (reference.dtype, reference.shape) != (target.dtype, target.shape):
        return DIFFERENT
    if reference.place != target.place:
        return DIFFERENT
    if not same_digest_kind and _same_bytes(reference, target):
        return EQUAL
    if rule.exact:
        return DIFFERENT if same_digest_kind else _differs_for_certain(reference, target)
    return _within_limits(rule, reference, target)


def _same_bytes(reference: Observation, target: Observation) -> bool:
    return reference.data is not None and reference.data == target.data


def _differs_for_certain(reference: Observation, target: Observation) -> Verdict:
    """Exact comparison of digests of different kinds: a sketch can refute, never prove."""
    if reference.data is not None and target.data is not None:
        return DIFFERENT
    distance = sketch_distance(reference, target)
    if distance is not None and distance.lower > 0:
        return DIFFERENT
    return Verdict(Relation.UNDECIDED, "values")


def _compare_plain(rule: Rule, left: Any, right: Any) -> Verdict:
    """Values of one type, elements one by one: True is not 1, and 1 is not 1.0."""
    if type(left) is not type(right):
        return DIFFERENT
    if isinstance(left, dict) and left.keys() == right.keys():
        return _all_equal(rule, [(left[key], right[key]) for key in left])
    if isinstance(left, list | tuple) and len(left) == len(right):
        return _all_equal(rule, list(zip(left, right, strict=True)))
    if not isinstance(left, float):
        return EQUAL if left == right else DIFFERENT
    if struct.pack("d", left) == struct.pack("d", right):
        return EQUAL
    return DIFFERENT if rule.exact else _compare_arrays(rule, np.array([left]), np.array([right]))


def _all_equal(rule: Rule, pairs: Sequence[tuple[Any, Any]]) -> Verdict:
    verdicts = (_compare_plain(rule, left, right) for left, right in pairs)
    return next((verdict for verdict in verdicts if not verdict), EQUAL)


def _within_limits(rule: Rule, reference: Observation, target: Observation) -> Verdict:
    left, right = reference.array(), target.array()
    if left is not None and right is not None:
        return _compare_arrays(rule, left, right)
    if not is_inexact(reference.dtype):
        return DIFFERENT
    if bool(reference.nonfinite) != bool(target.nonfinite):
        return DIFFERENT
    return _compare_sketches(rule, reference, target)


def is_inexact(dtype: str) -> bool:
    """Whether elements of a dtype may be rounded, so that a tolerance makes sense."""
    return dtype.startswith(("float", "bfloat", "complex"))


def _compare_arrays(rule: Rule, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Verdict:
    if left.dtype.kind in "iub":
        return EQUAL if bool((left == right).all()) else DIFFERENT
    if rule.elementwise:
        for _, a, b in pieces(left, right):
            if not _elements_close(rule, a, b):
                return DIFFERENT
    if rule.rel_l2 is not None and not _norm_close(rule, left, right):
        return DIFFERENT
    return EQUAL


def _elements_close(rule: Rule, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """Elementwise: within ``atol + rtol * |target|``, and within the limit of ULPs.

    Under a symmetric rule the larger of both elements counts instead of the target's.
    """
    a, b = widened(left), widened(right)
    both_nan = np.isnan(a) & np.isnan(b) if rule.equal_nan else np.zeros(a.shape, np.bool_)
    with np.errstate(all="ignore"):
        limited = rule.rtol is not None or rule.atol is not None
        if limited and not bool((_near(rule, a, b) | (a == b) | both_nan).all()):
            return False
    return rule.ulp is None or _ulp_close(rule.ulp, left[~both_nan], right[~both_nan])


def _near(rule: Rule, a: npt.NDArray[Any], b: npt.NDArray[Any], unit: float = 1.0) -> Mask:
    """Which finite elements, given in some unit, are within the limits of `rtol` and `atol`."""
    size = np.maximum(np.abs(a), np.abs(b)) if rule.symmetric else np.abs(b)
    apart = np.abs(a - b)
    near: Mask = np.isfinite(a) & np.isfinite(b)
    huge = near & np.isinf(apart)
    near &= apart <= (rule.atol or 0.0) / unit + (rule.rtol or 0.0) * size
    if huge.any():
        # An infinite limit would take in any difference that is too large for float64.
        near[huge] = _near(rule, a[huge] / _HUGE, b[huge] / _HUGE, _HUGE)
    return near


def _ulp_close(limit: int, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    left, right = parts(left), parts(right)
    a, b = widened(left), widened(right)
    if not bool(((np.isfinite(a) & np.isfinite(b)) | (a == b)).all()):
        return False
    apart = largest_ulp(left, right)
    return apart is None or apart <= limit


def _norm_close(rule: Rule, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    apart, size, other_size = Norm(), Norm(), Norm()
    for _, a, b in pieces(left, right):
        a, b = widened(a), widened(b)
        finite = np.isfinite(a) & np.isfinite(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b) if rule.equal_nan else False)
        if not bool((finite | same).all()):
            return False
        a, b = a[finite], b[finite]
        apart.take_difference(a, b)
        size.take(a)
        other_size.take(b)
    limit = rule.rel_l2 or 0.0
    return apart.within(limit, size) or (rule.symmetric and apart.within(limit, other_size))


def _compare_sketches(rule: Rule, reference: Observation, target: Observation) -> Verdict:
    """Judge by estimated distance; where the bounds straddle the limit, nothing is decided."""
    distance = sketch_distance(reference, target)
    if distance is None:
        return Verdict(Relation.UNDECIDED, "values")
    norms, other_norms = distance.norms, distance.other_norms
    if rule.rel_l2 is not None:
        least, most = (
            (max(norms[end], other_norms[end]) if rule.symmetric else norms[end]) * rule.rel_l2
            for end in (0, 1)
        )
        if distance.lower > most:
            return DIFFERENT
        if distance.upper > least:
            return Verdict(Relation.UNDECIDED, "values")
    if not rule.elementwise:
        return EQUAL
    if rule.ulp is None:
        # No difference within the elementwise limit has a larger norm than this.
        elements = math.prod(reference.shape)
        size = math.hypot(norms[1], other_norms[1]) if rule.symmetric else other_norms[1]
        largest = (rule.atol or 0.0) * math.sqrt(elements) + (rule.rtol or 0.0) * size
        if distance.lower > largest:
            return DIFFERENT
    return Verdict(Relation.UNDECIDED, "values")
