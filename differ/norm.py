"""L2 norms of any finite numbers: no square of them overflows or vanishes."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

_PLAIN_SQUARES = 1e-280, 1e300
"""Sums of squares that lost nothing to the range of float64; others are taken scaled."""


class Norm:
    """The L2 norm of the elements taken so far: ``sqrt(squares) * 2**exponent``."""

    def __init__(self) -> None:
        """Begin with none, whose norm is 0."""
        self._squares = 0.0
        self._exponent = 0

    def take(self, elements: npt.NDArray[Any], exponent: int = 0) -> None:
        """Add float64 or complex128 elements, each times ``2**exponent``."""
        with np.errstate(all="ignore"):
            squares = float(np.vdot(elements, elements).real)
            scale = 0
            if not _PLAIN_SQUARES[0] <= squares <= _PLAIN_SQUARES[1]:
                parts = np.ascontiguousarray(elements).reshape(-1).view(np.float64)
                scale = math.frexp(float(np.abs(parts).max(initial=0.0)))[1]
                parts = np.ldexp(parts, -scale)
                squares = float(np.vdot(parts, parts))
        self._add(squares, exponent + scale)

    def take_difference(self, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> None:
        """Add ``left - right``, elements that are all finite."""
        with np.errstate(all="ignore"):
            apart = left - right
        if np.isfinite(apart).all():
            self.take(apart)
        else:
            # Beside one that overflows no difference is lost by the halving.
            self.take(left / 2 - right / 2, exponent=1)

    def _add(self, squares: float, exponent: int) -> None:
        if not squares:
            return
        common = max(exponent, self._exponent) if self._squares else exponent
        with np.errstate(all="ignore"):
            mine = np.ldexp(self._squares, 2 * (self._exponent - common))
            self._squares = float(mine + np.ldexp(squares, 2 * (exponent - common)))
        self._exponent = common

    def over(self, other: "Norm") -> float | None:
        """This norm divided by another one; None where that one is 0."""
        if not other._squares:
            return None
        with np.errstate(all="ignore"):
            ratio = math.sqrt(self._squares) / math.sqrt(other._squares)
            return float(np.ldexp(ratio, self._exponent - other._exponent))

    def within(self, limit: float, other: "Norm") -> bool:
        """Whether this norm is at most ``limit`` times another one."""
        ratio = self.over(other)
        if ratio is None or not limit:
            return not self._squares
        return ratio <= limit

    @property
    def value(self) -> float:
        """The norm itself; infinite where it exceeds float64."""
        with np.errstate(all="ignore"):
            return float(np.ldexp(math.sqrt(self._squares), self._exponent))

    @property
    def is_plain(self) -> bool:
        """Whether it is neither 0 nor near the ends of float64's range."""
        return bool(self._squares) and not self._exponent
