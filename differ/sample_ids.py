"""Sample IDs as numbers: whole numbers, texts and lists of them, so that numpy can sort them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

LARGEST = 1 << 62
"""Whole numbers below it, and above its negative, stand for themselves."""


class SampleIds:
    """Gives every ID a number; small whole numbers are their own.

    What is not a small whole number is kept once, and its number says where, so that 0 and ``"0"``
    are different IDs.
    """

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._number_of: dict[Any, int] = {}

    def numbers(self, ids: Sequence[Any]) -> Numbers | None:
        """The numbers of some IDs; None where one of them is no ID."""
        if {int}.issuperset(map(type, ids)):
            try:
                numbers = np.array(ids, np.int64)
            except OverflowError:
                pass
            else:
                if _are_small(numbers):
                    return numbers
        found = [self._number(each) for each in ids]
        return None if None in found else np.array(found, np.int64)

    def _number(self, each: Any) -> int | None:
        if type(each) is int and -LARGEST < each < LARGEST:
            return each
        key = tuple(each) if type(each) is list else each
        parts = key if type(key) is tuple else (key,)
        if not parts or not {int, str}.issuperset(map(type, parts)):
            return None
        number = self._number_of.get(key)
        if number is None:
            number = self._number_of[key] = LARGEST + len(self._kept)
            self._kept.append(each)
        return number

    def of_array(self, array: npt.NDArray[Any]) -> Numbers | None:
        """The numbers of the elements of an array; None where they are no whole numbers."""
        if array.dtype.kind not in "iu":
            return None
        flat = array.reshape(-1)
        if array.dtype.itemsize < 8:
            return flat.astype(np.int64)
        if flat.size and not _are_small(flat):
            return self.numbers(flat.tolist())
        return flat.astype(np.int64)

    def id_of(self, number: int) -> Any:
        """The ID that has a number."""
        return number if number < LARGEST else self._kept[number - LARGEST]

    def sort_key(self, number: int) -> tuple[Any, ...]:
        """Sorts numbers as people sort IDs: whole numbers, then texts with 4 before 14."""
        found = self.id_of(number)
        if type(found) is int:
            return 0, found
        text = found if type(found) is str else repr(found)
        parts = re.split(r"([0-9]+)", text)
        return 1, [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)]


def _are_small(numbers: npt.NDArray[Any]) -> bool:
    return bool(
        numbers.size == 0 or (int(numbers.min()) > -LARGEST and int(numbers.max()) < LARGEST)
    )
