"""Leaves of batches that belong to one sample each, as the items of a list of texts or boxes.

A batch of eight has eight of them, a micro-batch of two has two: they are told by an index in their
path that counts the samples, and follow one another over the micro-batches.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from traceparity.differ.window_rows import WindowRows
from traceparity.tracefmt.records import Phase, Site

_PHASES = (Phase.DATA, Phase.FORWARD, Phase.BACKWARD)
_INDEX = re.compile(r"\[(\d+)\]")
Key = tuple[int, int]


@dataclass(slots=True)
class SampleLeaves:
    """The leaves of all samples, at one place of their structure.

    Attributes:
        phase: The phase.
        keys: Site and call of the groups that they are.
        rows: Their rows in the order of the samples, of the reference and of the target.
    """

    phase: Phase
    keys: set[Key]
    rows: tuple[list[int], list[int]]


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the structure: a path without the index that counts samples."""

    phase: Phase
    component: str
    before: str
    after: str
    call: int


@lru_cache(maxsize=4096)
def _splits(field: str) -> tuple[tuple[str, int, str], ...]:
    return tuple(
        (field[: found.start()], int(found[1]), field[found.end() :])
        for found in _INDEX.finditer(field)
    )


def sample_leaves(reference: WindowRows, target: WindowRows) -> Iterator[SampleLeaves]:
    """The leaves that belong to one sample each on both sides."""
    if reference.sizes is None or target.sizes is None or reference.sizes == target.sizes:
        return
    found = [_places(window) for window in (reference, target)]
    taken: set[Key] = set()
    for place in found[0].keys() & found[1].keys():
        both = found[0][place], found[1][place]
        lists = [
            _in_order(window, members)
            for window, members in zip((reference, target), both, strict=True)
        ]
        keys = {key for members in both for key in members.values()}
        if lists[0] is None or lists[1] is None or keys & taken:
            continue
        taken |= keys
        yield SampleLeaves(place.phase, keys, (lists[0], lists[1]))


def counts_beyond(site: Site, window: WindowRows) -> bool:
    """Whether a path has an index that a window with as few samples in a batch may not have."""
    if site.phase not in _PHASES or window.sizes is None:
        return False
    return any(index >= min(window.sizes) for _, index, _ in _splits(site.field))


def _places(window: WindowRows) -> dict[_Place, dict[int, Key]]:
    """For each place the groups by index."""
    places: dict[_Place, dict[int, Key]] = defaultdict(dict)
    for key, group in window.groups.items():
        site = window.sites.sites[group.site]
        if site.phase in _PHASES:
            for before, index, after in _splits(site.field):
                place = _Place(site.phase, site.component, before, after, group.call)
                places[place][index] = key
    return places


def _in_order(window: WindowRows, members: dict[int, Key]) -> list[int] | None:
    """The rows sample by sample; None where the index does not count samples."""
    rows: list[int] = []
    groups = {index: window.groups[members[index]] for index in sorted(members)}
    for microbatch, size in enumerate(window.sizes or []):
        here = {index: group.rows.get(microbatch) for index, group in groups.items()}
        found = [row for row in here.values() if row is not None]
        if [index for index, row in here.items() if row is not None] != list(range(size)):
            return None
        rows += found
    return rows
