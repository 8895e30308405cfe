"""The traces of all ranks of a run, read as one in which sharded tensors are whole."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from traceparity.differ.gathered_columns import (
    GATHERED,
    NOT_ROWS,
    NOTHING,
    GatheredColumns,
    Gathering,
    joined_digest,
)
from traceparity.differ.observation import numpy_dtype
from traceparity.differ.shard_boxes import put_together
from traceparity.differ.shard_parts import Part, RankShards, Thing, is_shard
from traceparity.tracefmt.reader import Trace
from traceparity.tracefmt.records import Columns, Phase, Site, StepEntry

_OWN_BATCH = frozenset({Phase.DATA, Phase.FORWARD, Phase.LOSS, Phase.BACKWARD})


class GatheredTrace(Trace):
    """Reads like the trace of one rank, with whole tensors in the place of its shards.

    What belongs to the rank's own batch (data, forward, loss, backward) is left out.

    Attributes:
        conflicts: Where ranks that hold one and the same shard have unequal ones, by step and
            phase; of the steps that were read.
    """

    def __init__(
        self, run: Mapping[int, Trace], rank: int, *, without: frozenset[Thing] | None = None
    ) -> None:
        """Take over the trace of a rank.

        Args:
            run: The traces of all ranks.
            rank: The one whose plain values are told.
            without: Leave these things out, and gather nothing; None gathers all shards.
        """
        vars(self).update(vars(run[rank]))
        self._view = run[rank]
        self._without = without
        self._ranks = [
            RankShards(number, trace, {entry.number: entry for entry in trace.steps})
            for number, trace in run.items()
        ]
        self.shapes, self.strings = list(self._view.shapes), list(self._view.strings)
        self._numbers: dict[Any, int] = {}
        self._site_ids = {entry.site: number for number, entry in enumerate(self._view.sites)}
        self.conflicts: dict[tuple[int, int], str] = {}
        if without is None:
            self._take_over_all(list(run.values()))

    def _take_over_all(self, traces: Sequence[Trace]) -> None:
        self.complete = all(trace.complete for trace in traces)
        reasons = [trace.incomplete_reason for trace in traces if not trace.complete]
        self.incomplete_reason = reasons[0] if reasons else ""
        self.not_observed = list(
            dict.fromkeys(note for trace in traces for note in trace.not_observed)
        )
        self.steps = [self._entry(entry) for entry in self._view.steps]

    def _entry(self, entry: StepEntry) -> StepEntry:
        """The entry of a step, equal to another one only if those of all ranks are."""
        entries = [each.steps.get(entry.number) for each in self._ranks]
        return replace(
            entry,
            phase_digests=tuple(
                joined_digest([each.phase_digests[phase] if each else NOTHING for each in entries])
                for phase in Phase
            ),
        )

    def verify_step(self, number: int) -> None:
        """As `Trace.verify_step`, of all ranks."""
        for each in self._ranks:
            if number in each.steps:
                each.trace.verify_step(number)

    def columns(self, number: int) -> Columns:
        """The rows of a step with whole tensors."""
        source = self._view.columns(number)
        sharded = is_shard(source)
        kept = ~self._left_out(source)
        if self._without is not None:
            kept &= ~sharded
            return _chosen(source, np.flatnonzero(kept))
        rows = np.flatnonzero(kept)
        gathering = Gathering(self, number, source)
        for at, row in enumerate(rows.tolist()):
            if sharded[row]:
                site = self.sites[source.site[row]].site
                call = int(source.call[row])
                gathering.row(at, site, self._parts(number, site, call))
        for site, call in self._told_by_others(number, source, rows):
            gathering.extra(site, call, self._parts(number, site, call))
        return gathering.columns(rows)

    def _left_out(self, columns: Columns) -> Any:
        own = np.array([entry.site.phase in _OWN_BATCH for entry in self.sites], np.bool_)
        if self._without:
            things = [(entry.site.component, entry.site.field) for entry in self.sites]
            own |= np.array([thing in self._without for thing in things], np.bool_)
        return own[columns.site] if len(columns) else np.zeros(0, np.bool_)

    def _parts(self, number: int, site: Site, call: int) -> list[Part]:
        found = (each.part(number, site, call) for each in self._ranks)
        return [part for part in found if part is not None]

    def _told_by_others(
        self, number: int, columns: Columns, rows: Any
    ) -> Iterator[tuple[Site, int]]:
        """States that changed on other ranks only."""
        mine = {
            (self.sites[columns.site[row]].site, int(columns.call[row])) for row in rows.tolist()
        }
        for each in self._ranks:
            if number not in each.steps:
                continue
            for site, call in each.parts(number):
                if site.phase == Phase.STATE and (site, call) not in mine:
                    mine.add((site, call))
                    yield site, call

    def site_id(self, site: Site) -> int:
        """The number of a site in this trace."""
        return self._site_ids[site]

    def shape_id(self, shape: tuple[int, ...]) -> int:
        """The number of a shape, a new one where no tensor of the trace has it."""
        return self._number("shape", shape, self.shapes)

    def string_id(self, text: str) -> int:
        """The number of a string, a new one where the trace has none such."""
        return self._number("string", text, self.strings)

    def _number(self, table: str, item: Any, items: list[Any]) -> int:
        key = table, item
        if key not in self._numbers:
            known = items.index(item) if item in items else len(items)
            if known == len(items):
                items.append(item)
            self._numbers[key] = known
        return self._numbers[key]

    def value_pieces(self, columns: Columns, row: int) -> Iterator[bytes]:
        """The kept bytes of a row, those of a gathered one put together."""
        number = int(columns.value_offset[row]) - GATHERED
        if not isinstance(columns, GatheredColumns):
            yield from super().value_pieces(columns, row)
        elif number < 0:
            yield from self._view.value_pieces(columns, row)
        else:
            parts = columns.parts[number]
            dtype = numpy_dtype(self.strings[columns.dtype[row]])
            assert dtype is not None
            yield put_together(
                [(part.box, part.trace.value(part.columns, part.row) or b"") for part in parts],
                parts[0].whole,
                dtype,
            )


def _chosen(columns: Columns, rows: Any) -> Columns:
    names = [each.name for each in fields(Columns) if each.name not in NOT_ROWS]
    return replace(columns, **{name: getattr(columns, name)[rows] for name in names})
