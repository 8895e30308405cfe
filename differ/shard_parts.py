"""The shards that each rank of a run has recorded."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceparity.differ.shard_boxes import Box
from traceparity.tracefmt.reader import Trace
from traceparity.tracefmt.records import Columns, Flag, Kind, Phase, Site, StepEntry

Thing = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A shard as one rank has it."""

    rank: int
    trace: Trace
    columns: Columns
    row: int

    @property
    def box(self) -> Box:
        """Which elements of the whole it holds."""
        shapes, columns = self.trace.shapes, self.columns
        return Box(shapes[columns.offset[self.row]], shapes[columns.shape[self.row]])

    @property
    def whole(self) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        shape: tuple[int, ...] = self.trace.shapes[self.columns.whole[self.row]]
        return shape

    @property
    def digest(self) -> bytes:
        """Its fingerprint."""
        digest: bytes = self.columns.digest[self.row].tobytes()
        return digest

    @property
    def sketch(self) -> Any:
        """Its sketch; None where there is none."""
        row = int(self.columns.sketch_row[self.row])
        return self.columns.sketches[row] if row >= 0 else None


@dataclass(slots=True)
class RankShards:
    """One rank's sharded rows, by step."""

    rank: int
    trace: Trace
    steps: dict[int, StepEntry]
    kept: dict[int, dict[tuple[Site, int], Part]] = field(default_factory=dict)

    def parts(self, number: int) -> dict[tuple[Site, int], Part]:
        """The shards of a step by site and call."""
        found = self.kept.get(number)
        if found is None:
            columns, sites = self.trace.columns(number), self.trace.sites
            found = {
                (sites[columns.site[row]].site, int(columns.call[row])): Part(
                    self.rank, self.trace, columns, row
                )
                for row in np.flatnonzero(is_shard(columns)).tolist()
            }
            if len(self.kept) > 2:
                self.kept.pop(min(self.kept))
            self.kept[number] = found
        return found

    def part(self, number: int, site: Site, call: int) -> Part | None:
        """The shard of a site; of a state that was not told again the last one."""
        if number in self.steps and (found := self.parts(number).get((site, call))):
            return found
        if site.phase != Phase.STATE:
            return None
        for earlier in sorted((each for each in self.steps if each < number), reverse=True):
            told = [
                part
                for (where, _), part in self.parts(earlier).items()
                if (where.component, where.field) == (site.component, site.field)
                and part.columns.flags[part.row] & Flag.STATEFUL
            ]
            if told:
                return told[-1]
        return None


def sharded_things(run: Iterable[Trace]) -> frozenset[Thing]:
    """What is sharded in a run, as its first and last steps tell."""
    found: set[Thing] = set()
    for trace in run:
        numbers = [entry.number for entry in trace.steps]
        for number in {*numbers[:2], *numbers[-1:]}:
            columns = trace.columns(number)
            for site in np.unique(columns.site[is_shard(columns)]).tolist():
                entry = trace.sites[site].site
                found.add((entry.component, entry.field))
    return frozenset(found)


def is_shard(columns: Columns) -> Any:
    """Which rows are shards."""
    return (columns.flags & np.uint16(Flag.SHARDED) != 0) & (columns.kind == Kind.TENSOR)
