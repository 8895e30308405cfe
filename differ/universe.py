"""The universe: the samples that should be seen."""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceparity.differ.sample_ids import LARGEST, Numbers, SampleIds


@dataclass(frozen=True, slots=True)
class Universe:
    """The samples that should be seen.

    Attributes:
        told: What they are and who says so, for people.
        span: The samples where they are evenly spaced whole numbers.
        listed: Their sorted numbers where they are not.
    """

    told: str
    span: range | None = None
    listed: Numbers | None = None

    def __len__(self) -> int:
        if self.span is not None:
            return len(self.span)
        return 0 if self.listed is None else len(self.listed)

    def holds(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Which of some numbers belong to it."""
        held = np.zeros(len(numbers), bool)
        if self.span is None:
            if self.listed is not None and len(self.listed):
                places = np.searchsorted(self.listed, numbers)
                held = self.listed[np.minimum(places, len(self.listed) - 1)] == numbers
        elif len(self.span):
            inside = (numbers >= self.span[0]) & (numbers <= self.span[-1])
            held[inside] = (numbers[inside] - self.span[0]) % self.span.step == 0
        return held

    def missing(self, seen: Numbers, most: int, ids: SampleIds) -> list[int]:
        """The first numbers of it that are not among the sorted ``seen``, all of which it holds."""
        if self.span is not None:
            return _gaps(self.span, (seen - self.span.start) // self.span.step, most)
        if self.listed is None:
            return []
        lacking = self.listed[~Universe("", listed=seen).holds(self.listed)]
        whole = int(np.searchsorted(lacking, LARGEST))
        if whole >= most or whole == len(lacking):
            return [int(number) for number in lacking[:most]]
        return heapq.nsmallest(most, lacking.tolist(), key=ids.sort_key)


def _gaps(span: range, places: Numbers, most: int) -> list[int]:
    """The first members of a span whose places are not among the sorted ``places``."""
    borders = np.concatenate([np.array([-1], np.int64), places, np.array([len(span)], np.int64)])
    found: list[int] = []
    for at in np.flatnonzero(np.diff(borders) > 1):
        first, last = int(borders[at]) + 1, int(borders[at + 1])
        found += span[first : min(last, first + most - len(found))]
        if len(found) >= most:
            break
    return found


def span_of(text: str) -> range:
    """The range that a policy writes as ``range(0, 12)``, from its smallest to its largest member.

    Raises:
        ValueError: The step is 0, or it reaches beyond the numbers that can be judged.
    """
    parts = [int(part) for part in text.strip().removeprefix("range(").rstrip(")").split(",")]
    if any(abs(part) >= LARGEST for part in parts):
        raise ValueError(f"reaches beyond {LARGEST - 1}")
    if parts[2:] == [0]:
        raise ValueError("a range needs a step that is not 0")
    span = range(*parts)
    return span if span.step > 0 else span[::-1]
