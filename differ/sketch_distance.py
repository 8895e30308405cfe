"""How far apart two tensors are at most and at least, from their sketches and statistics."""

import math
from dataclasses import dataclass

import numpy as np

from traceparity.differ.observation import Observation

LOWER, UPPER = 0.74, 1.48
"""Bounds of true over estimated distance; one in 5000 sketches of 61 sums lies outside.

That is the rate of a difference that is spread over many elements. Two elements that hold nearly
all of it share a sum and cancel once in 122 times, so `sketch_distance` looks at extremes and norms
too, which no cancelling hides.
"""
_MOST_FOR_NORM = 1 << 20
"""Elements up to which a norm in float32 is good to `_NORM_ERROR`."""
_NORM_ERROR = 2e-5
ROUNDING = 1e-6
"""What float32 accumulation may add to a sketch, relative to the tensors' norms."""
_FAINT = 1e-15
"""Norms in float32 below this may lack elements whose squares vanish."""
_LOST = 1e-44
"""What an element of float64 may lose when it is taken as a float32, beside its last digits."""


@dataclass(frozen=True, slots=True)
class Distance:
    """The L2 distance of two tensors with its bounds.

    Attributes:
        value: The estimate.
        lower: What it is at least.
        upper: What it is at most.
        norms: What the reference's norm is at least and at most.
        other_norms: The same of the target.
    """

    value: float
    lower: float
    upper: float
    norms: tuple[float, float]
    other_norms: tuple[float, float]


def sketch_distance(reference: Observation, target: Observation) -> Distance | None:
    """The L2 distance estimated from two sketches; None where there are none to compare."""
    if reference.sketch is None or target.sketch is None:
        return None
    norms, other_norms = _norms(reference), _norms(target)
    with np.errstate(all="ignore"):
        difference = reference.sketch.astype(np.float64) - target.sketch.astype(np.float64)
        value = float(np.linalg.norm(difference))
    if norms is None or other_norms is None or not math.isfinite(value):
        return None
    noise = ROUNDING * (norms[1] + other_norms[1]) + _lost(reference) + _lost(target)
    extremes = _gap_of_extremes(reference, target)
    upper = UPPER * value + noise
    if upper < max(extremes, _gap_of_norms(reference, target)):
        # Elements cancelled, and nobody knows how large they are.
        upper = math.inf
    lower = max(0.0, LOWER * value - noise, extremes)
    return Distance(value, lower, upper, norms, other_norms)


def _norms(seen: Observation) -> tuple[float, float] | None:
    """What a norm is at least and at most: squares of float32 overflow and vanish early."""
    lost = _lost(seen)
    if _FAINT < seen.norm < math.inf:
        return seen.norm, seen.norm + lost
    largest = max(abs(seen.minimum), abs(seen.maximum))
    if not math.isfinite(largest):
        # A sparse tensor has no extremes; without a value its norm is certain.
        return (0.0, lost) if seen.norm == 0 and not np.any(seen.sketch) else None
    return largest, largest * math.sqrt(_numbers(seen)) + lost


def _lost(seen: Observation) -> float:
    wide = seen.dtype in ("float64", "complex128")
    return _LOST * math.sqrt(_numbers(seen)) if wide else 0.0


def _numbers(seen: Observation) -> int:
    """How many real numbers a tensor holds."""
    return math.prod(seen.shape) * (2 if seen.dtype.startswith("complex") else 1)


def _gap_of_extremes(reference: Observation, target: Observation) -> float:
    """No two tensors are nearer than their smallest, or their largest, elements are."""
    pairs = (reference.minimum, target.minimum), (reference.maximum, target.maximum)
    gaps = [abs(a - b) - ROUNDING * (abs(a) + abs(b)) for a, b in pairs]
    return max((gap for gap in gaps if math.isfinite(gap)), default=0.0)


def _gap_of_norms(reference: Observation, target: Observation) -> float:
    """No two tensors are nearer than their norms are, as far as these can be trusted."""
    if math.prod(reference.shape) > _MOST_FOR_NORM:
        return 0.0
    gap = abs(reference.norm - target.norm) - _NORM_ERROR * (reference.norm + target.norm)
    return gap if math.isfinite(gap) else 0.0
