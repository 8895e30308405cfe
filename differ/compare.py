"""Comparing two observations under a rule of the policy."""

import enum
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceparity.differ.metrics import largest_ulp, pieces, sketch_distance, widened
from traceparity.differ.observation import Observation
from traceparity.differ.policy import Rule


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
    close = not rule.exact and _elements_close(rule, np.array([left]), np.array([right]))
    if close and rule.rel_l2 is not None:
        size = max(abs(left), abs(right)) if rule.symmetric else abs(left)
        close = left == right or abs(left - right) <= rule.rel_l2 * size
    return EQUAL if close else DIFFERENT


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
        if rule.rtol is not None or rule.atol is not None:
            size = np.maximum(np.abs(a), np.abs(b)) if rule.symmetric else np.abs(b)
            limit = (rule.atol or 0.0) + (rule.rtol or 0.0) * size
            near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= limit)
            if not bool((near | (a == b) | both_nan).all()):
                return False
    return rule.ulp is None or _ulp_close(rule.ulp, left[~both_nan], right[~both_nan])


def _ulp_close(limit: int, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    a, b = widened(left), widened(right)
    if np.isnan(a).any() or np.isnan(b).any() or bool((np.isinf(a) != np.isinf(b)).any()):
        return False
    apart = largest_ulp(left, right)
    # What has no units in the last place, as complex numbers, must be equal.
    return bool((a == b).all()) if apart is None else apart <= limit


def _norm_close(rule: Rule, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    apart = size = other_size = 0.0
    for _, a, b in pieces(left, right):
        a, b = widened(a), widened(b)
        finite = np.isfinite(a) & np.isfinite(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b) if rule.equal_nan else False)
        if not bool((finite | same).all()):
            return False
        a, b = a[finite], b[finite]
        with np.errstate(all="ignore"):
            apart += float(np.vdot(a - b, a - b).real)
            size += float(np.vdot(a, a).real)
            other_size += float(np.vdot(b, b).real)
    size = max(size, other_size) if rule.symmetric else size
    return math.sqrt(apart) <= (rule.rel_l2 or 0.0) * math.sqrt(size)


def _compare_sketches(rule: Rule, reference: Observation, target: Observation) -> Verdict:
    """Judge by estimated distance; where the bounds straddle the limit, nothing is decided."""
    distance = sketch_distance(reference, target)
    if distance is None or not math.isfinite(reference.norm):
        return Verdict(Relation.UNDECIDED, "values")
    if rule.rel_l2 is not None:
        size = max(reference.norm, target.norm) if rule.symmetric else reference.norm
        limit = rule.rel_l2 * size
        if distance.lower > limit:
            return DIFFERENT
        if distance.upper > limit:
            return Verdict(Relation.UNDECIDED, "values")
    if not rule.elementwise:
        return EQUAL
    if rule.ulp is None and math.isfinite(target.norm):
        # No difference within the elementwise limit has a larger norm than this.
        elements = math.prod(reference.shape)
        size = math.hypot(reference.norm, target.norm) if rule.symmetric else target.norm
        largest = (rule.atol or 0.0) * math.sqrt(elements) + (rule.rtol or 0.0) * size
        if distance.lower > largest:
            return DIFFERENT
    return Verdict(Relation.UNDECIDED, "values")
