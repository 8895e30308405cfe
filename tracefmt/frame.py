"""What the columns of one chunk share with those of the next: steps of a training repeat.

Which sites a step sees, in which order, and of which shapes is the same in nearly all steps. So the
bytes that say it are compared with those of chunks that were read before; what was made of them,
and found sound, serves again. Only bytes count: it does not matter from which file they are.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from traceparity.tracefmt import limits

_MOST_FRAMES = 4
_LARGEST = 4 * limits.MIB
"""Bytes up to which a frame is kept."""

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sound:
    """What was made of the fixed byte strings of a frame.

    Attributes:
        arrays: Columns by name, those with the pointers among them.
        most: The largest ids in them: of a site, a shape and a string.
        pointers: Bytes of the columns that point at sketches and values.
        room: How many sketches, and how many bytes of values, there were.
    """

    arrays: dict[str, npt.NDArray[Any]]
    most: tuple[int, int, int]
    pointers: tuple[bytes, ...]
    room: tuple[int, int]


@dataclass(slots=True)
class Frame:
    """A map of byte strings without those that vary.

    Attributes:
        size: Bytes of the whole map.
        stretches: Bytes that are the same in all maps of this frame, with their place from the
            map's begin: the fixed byte strings, and the names and lengths of all.
        fixed: The byte strings that do not vary, by name.
        varying: Where the others begin and end, by name.
        sound: What was made of the fixed ones; None until they were found sound.
    """

    size: int
    stretches: list[tuple[int, bytes]]
    fixed: dict[str, memoryview]
    varying: dict[str, Place]
    sound: Sound | None = None

    def fits(self, payload: bytes, begin: int) -> bool:
        """Whether the map that begins there is one of this frame."""
        return len(payload) - begin >= self.size and all(
            payload.startswith(stretch, begin + at) for at, stretch in self.stretches
        )

    def fields(self, view: memoryview, begin: int) -> dict[str, Any]:
        """The fields of the map that begins there, in a payload of which it fits."""
        fields: dict[str, Any] = self.fixed.copy()
        for name, (start, end) in self.varying.items():
            fields[name] = view[begin + start : begin + end]
        return fields


class Frames:
    """The frames of the last maps of one name, whatever payload they were in.

    Attributes:
        name: Of the map.
    """

    def __init__(self, name: str, varying: Collection[str]) -> None:
        self.name = name
        self._varying = frozenset(varying)
        self._known: list[Frame] = []

    def find(self, payload: bytes, begin: int) -> Frame | None:
        """The frame of the map that begins there, if one like it was read before."""
        for frame in self._known:
            if frame.fits(payload, begin):
                return frame
        return None

    def learn(self, payload: bytes, begin: int, end: int, places: dict[str, Place]) -> Frame | None:
        """The frame of a map that was read; None where it is too large to be kept.

        Args:
            payload: What the map is in.
            begin: Where the map begins.
            end: Where it ends.
            places: Where each byte string begins and ends, of a map of nothing else.
        """
        varying = {name: place for name, place in places.items() if name in self._varying}
        size = end - begin - sum(last - first for first, last in varying.values())
        if size > _LARGEST:
            return None
        stretches, at = [], begin
        for first, last in [*sorted(varying.values()), (end, end)]:
            stretches.append((at - begin, payload[at:first]))
            at = last
        frame = Frame(
            end - begin,
            stretches,
            _fixed(stretches, begin, places, varying),
            {name: (first - begin, last - begin) for name, (first, last) in varying.items()},
        )
        self._known = [frame, *self._known[: _MOST_FRAMES - 1]]
        return frame


def _fixed(
    stretches: list[tuple[int, bytes]],
    begin: int,
    places: dict[str, Place],
    varying: Collection[str],
) -> dict[str, memoryview]:
    """Views of the stretches: a view of the payload would keep all of it."""
    fixed = {}
    for name, (first, last) in places.items():
        if name not in varying:
            start, stretch = next(each for each in reversed(stretches) if each[0] <= first - begin)
            view = memoryview(stretch)
            fixed[name] = view[first - begin - start : last - begin - start]
    return fixed
