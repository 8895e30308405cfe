"""Shards as boxes of a whole tensor: whether they make it up, and its elements from theirs."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Box:
    """A stretch of elements along each dimension.

    Attributes:
        offset: Where it begins.
        sizes: How long it is.
    """

    offset: Shape
    sizes: Shape

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.sizes)

    def meets(self, other: "Box") -> bool:
        """Whether both have an element in common."""
        return all(
            max(a, b) < min(a + n, b + m)
            for a, n, b, m in zip(self.offset, self.sizes, other.offset, other.sizes, strict=True)
        )


def make_up(boxes: Sequence[Box], whole: Shape) -> bool:
    """Whether the boxes hold each element of a tensor of shape ``whole`` once."""
    filled = [box for box in boxes if box.elements]
    inside = all(
        len(box.sizes) == len(whole)
        and all(at + n <= size for at, n, size in zip(box.offset, box.sizes, whole, strict=True))
        for box in filled
    )
    if not inside or sum(box.elements for box in filled) != math.prod(whole):
        return False
    return not any(one.meets(other) for one, other in itertools.combinations(filled, 2))


def put_together(
    parts: Sequence[tuple[Box, bytes]], whole: Shape, dtype: "np.dtype[np.generic]"
) -> bytes:
    """The bytes of the whole tensor from those of its parts."""
    result = np.zeros(whole, dtype)
    for box, data in parts:
        place = tuple(slice(at, at + size) for at, size in zip(box.offset, box.sizes, strict=True))
        result[place] = np.frombuffer(data, dtype).reshape(box.sizes)
    return result.tobytes()
