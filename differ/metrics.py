"""How far apart two observations are, for people to read and for rules to judge."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceparity.differ.norm import Norm
from traceparity.differ.observation import Observation
from traceparity.differ.sketch_distance import sketch_distance

_PIECE = 1 << 20
"""Elements that are compared at once."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The distance of two observations; None where it cannot be known.

    Attributes:
        max_abs: Largest absolute difference of two elements.
        max_rel: Largest difference relative to the reference's element.
        rel_l2: L2 norm of the difference over that of the reference.
        ulp: Largest difference in units in the last place.
        cosine: Cosine of the angle between both.
        unequal: How many elements are not bit-equal; where dtypes differ, not equal in value.
        elements: How many elements there are.
        first_index: Index of the first unequal element.
        nans: How many elements of the reference and of the target are NaN.
        infinities: How many are infinite.
        estimated: Whether `rel_l2` is estimated from sketches.
    """

    max_abs: float | None = None
    max_rel: float | None = None
    rel_l2: float | None = None
    ulp: int | None = None
    cosine: float | None = None
    unequal: int | None = None
    elements: int | None = None
    first_index: tuple[int, ...] | None = None
    nans: tuple[int, int] | None = None
    infinities: tuple[int, int] | None = None
    estimated: bool = False


def measure(reference: Observation | None, target: Observation | None) -> Metrics:
    """The distance of two observations, from values where both were kept, else from sketches."""
    if reference is None or target is None:
        return Metrics()
    if not reference.is_tensor or not target.is_tensor:
        return _measure_plain(reference.plain, target.plain)
    if reference.shape != target.shape or reference.place != target.place:
        return Metrics()
    left, right = reference.array(), target.array()
    if left is not None and right is not None:
        return _measure_arrays(left, right)
    distance = sketch_distance(reference, target)
    if distance is None or not 0 < reference.norm < math.inf:
        return Metrics()
    return Metrics(rel_l2=distance.value / reference.norm, estimated=True)


def _measure_plain(left: Any, right: Any) -> Metrics:
    numbers = (int, float)
    if not isinstance(left, numbers) or not isinstance(right, numbers):
        return Metrics()
    if isinstance(left, bool) or isinstance(right, bool):
        return Metrics()
    difference = abs(left - right)
    relative = difference / abs(left) if left else None
    return Metrics(max_abs=difference, max_rel=relative)


def pieces(
    left: npt.NDArray[Any], right: npt.NDArray[Any]
) -> Iterator[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]]:
    """Both arrays flat and piece by piece with the first index, so that memory stays bounded."""
    flat, other = left.reshape(-1), right.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        yield start, flat[start : start + _PIECE], other[start : start + _PIECE]


def _measure_arrays(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Metrics:
    sums = _Sums()
    for start, a, b in pieces(left, right):
        sums.take(start, a, b)
    return sums.metrics(left.shape, left.size)


class _Sums:
    """What is known of a distance after some of the pieces."""

    def __init__(self) -> None:
        self.unequal = 0
        self.first: int | None = None
        self.max_abs: list[float] = []
        self.max_rel: list[float] = []
        self.ulp: list[int] = []
        self.ulp_known = True
        self.apart = Norm()
        self.norms = Norm(), Norm()
        self.product = 0.0
        self.nans = [0, 0]
        self.infinities = [0, 0]

    def take(self, start: int, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> None:
        a, b = widened(left), widened(right)
        differs = _unequal(left, right)
        if self.first is None and differs.any():
            self.first = start + int(np.argmax(differs))
        self.unequal += int(differs.sum())
        for index, array in enumerate((a, b)):
            self.nans[index] += int(np.isnan(array).sum())
            self.infinities[index] += int(np.isinf(array).sum())
        self._measure(a, b)
        ulp = largest_ulp(left, right)
        self.ulp_known &= ulp is not None
        self.ulp += [] if ulp is None else [ulp]

    def _measure(self, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> None:
        # Infinities and NaNs at the same place of both are no distance; against a number they are
        # an infinite one. Sizes are those of the finite elements.
        finite = np.isfinite(a) & np.isfinite(b)
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            difference = np.where(same, 0.0, np.where(finite, np.abs(a - b), np.inf))
            size = np.abs(a)
            self.max_abs += _largest(difference)
            self.max_rel += _largest(difference[size > 0] / size[size > 0])
            if np.isinf(difference[~finite]).any():
                self.apart.take(np.array([np.inf]))
            a, b = a[finite], b[finite]
            self.apart.take_difference(a, b)
            for norm, array in zip(self.norms, (a, b), strict=True):
                norm.take(array)
            self.product += float(np.vdot(a, b).real)

    def metrics(self, shape: tuple[int, ...], elements: int) -> Metrics:
        return Metrics(
            max_abs=max(self.max_abs, default=None),
            max_rel=max(self.max_rel, default=None),
            rel_l2=self.apart.over(self.norms[0]),
            ulp=max(self.ulp, default=None) if self.ulp_known else None,
            cosine=self._cosine(),
            unequal=self.unequal,
            elements=elements,
            first_index=None
            if self.first is None
            else tuple(int(i) for i in np.unravel_index(self.first, shape)),
            nans=(self.nans[0], self.nans[1]),
            infinities=(self.infinities[0], self.infinities[1]),
        )

    def _cosine(self) -> float | None:
        if not all(norm.is_plain for norm in self.norms):
            return None
        cosine = self.product / math.prod(norm.value for norm in self.norms)
        return min(1.0, max(-1.0, cosine))


def _largest(values: npt.NDArray[Any]) -> list[float]:
    """The largest value, if any; infinite where a NaN met a number."""
    if not values.size:
        return []
    largest = float(np.max(values))
    return [math.inf if math.isnan(largest) else largest]


def widened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements as float64 or complex128, which hold every smaller float exactly."""
    # A signalling NaN raises a flag when it is converted; that is no news here.
    with np.errstate(all="ignore"):
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def parts(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Real and imaginary parts along a last dimension; what is real as it is."""
    if array.dtype.kind != "c":
        return array
    real = np.dtype(f"{array.dtype.byteorder}f{array.dtype.itemsize // 2}")
    return np.ascontiguousarray(array).view(real).reshape(*array.shape, 2)


def _unequal(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which elements have other bits; of unequal dtypes, which have other values."""
    if left.dtype != right.dtype:
        a, b = widened(left), widened(right)
        return np.asarray((a != b) & ~(np.isnan(a) & np.isnan(b)), np.bool_)
    differs = np.asarray(_bits(parts(left)) != _bits(parts(right)), np.bool_)
    return np.asarray(differs.any(axis=1), np.bool_) if left.dtype.kind == "c" else differs


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def largest_ulp(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> int | None:
    """The largest difference in units in the last place; None for what has none."""
    if left.dtype != right.dtype or left.dtype.kind in "iub" or not left.size:
        return None
    left, right = parts(left), parts(right)
    if np.isnan(widened(left)).any() or np.isnan(widened(right)).any():
        return None
    a, b = _ordered(left), _ordered(right)
    # Of one sign a difference fits into int64; of two the magnitudes add up within uint64.
    same_sign = (a < 0) == (b < 0)
    near = np.abs(np.where(same_sign, a - b, 0)).astype(np.uint64)
    far = np.abs(a).astype(np.uint64) + np.abs(b).astype(np.uint64)
    return int(np.where(same_sign, near, far).max())


def _ordered(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Integers in the order of the floats, neighbours one apart; both zeros are 0."""
    width = 8 * array.dtype.itemsize
    bits = _bits(array).astype(np.uint64)
    magnitude = (bits & np.uint64((1 << (width - 1)) - 1)).astype(np.int64)
    return np.where(bits >> np.uint64(width - 1), -magnitude, magnitude)
