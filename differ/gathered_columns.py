"""Rows of a step in which shards are replaced by the whole tensors that they make up."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import xxhash

from traceparity.differ.observation import numpy_dtype
from traceparity.differ.shard_boxes import Box, make_up
from traceparity.differ.shard_parts import Part
from traceparity.tracefmt.records import Columns, Flag, Kind, Site

GATHERED = 1 << 62
"""A value offset from here on is no place in a file but the number of a gathered value."""
NOT_ROWS = ("sketches", "values")
NOTHING = bytes(16)


class Names(Protocol):
    """Numbers for names, new ones where a trace has none, and the conflicts that were met."""

    conflicts: dict[tuple[int, int], str]

    def site_id(self, site: Site) -> int:
        """The number of a site."""

    def shape_id(self, shape: tuple[int, ...]) -> int:
        """The number of a shape."""

    def string_id(self, text: str) -> int:
        """The number of a string."""


@dataclass(frozen=True, slots=True)
class GatheredColumns(Columns):
    """Rows of which some are tensors put together.

    Attributes:
        source: The rows as stored.
        parts: Of each gathered value the parts that it is made of.
    """

    source: Columns
    parts: tuple[tuple[Part, ...], ...]


class Gathering:
    """The rows of a step in the making."""

    def __init__(self, trace: Names, number: int, source: Columns) -> None:
        self._trace = trace
        self._number = number
        self._source = source
        self._changes: list[tuple[int, dict[str, Any]]] = []
        self._extra: list[dict[str, Any]] = []
        self._sketches: list[Any] = []
        self._values: list[tuple[Part, ...]] = []

    def row(self, at: int, site: Site, parts: Sequence[Part]) -> None:
        """Put the tensor whose shard is in a row in its place."""
        self._changes.append((at, self._whole(site, parts)))

    def extra(self, site: Site, call: int, parts: Sequence[Part]) -> None:
        """Add a tensor of which this rank tells nothing."""
        part, strings = parts[0], parts[0].trace.strings
        names = {
            name: self._trace.string_id(strings[getattr(part.columns, name)[part.row]])
            for name in ("dtype", "device")
        }
        own = {
            "site": self._trace.site_id(site),
            "call": call,
            "microbatch": part.columns.microbatch[part.row],
            "kind": int(Kind.TENSOR),
        }
        self._extra.append(own | names | self._whole(site, parts))

    def _whole(self, site: Site, parts: Sequence[Part]) -> dict[str, Any]:
        boxes: dict[Box, Part] = {}
        for part in parts:
            first = boxes.setdefault(part.box, part)
            if first.digest != part.digest:
                self._trace.conflicts.setdefault(
                    (self._number, int(site.phase)),
                    f"in step {self._number} ranks {first.rank} and {part.rank} have unequal"
                    f" shards of {site} at {list(part.box.offset)}",
                )
        distinct = [boxes[box] for box in sorted(boxes)]
        whole = parts[0].whole
        stats = np.array([part.columns.stats[part.row] for part in distinct], np.float64)
        filled = [part for part in distinct if part.box.elements]
        flags = np.bitwise_or.reduce([part.columns.flags[part.row] for part in distinct])
        complete = make_up(list(boxes), whole)
        places = ", ".join(f"{list(b.sizes)} at {list(b.offset)}" for b in sorted(boxes))
        return {
            "flags": int(flags) & ~int(Flag.EXTERNAL_VALUE),
            "shape": self._trace.shape_id(whole),
            "whole": 0,
            "offset": 0,
            "layout": self._trace.string_id(f"made of {places}"),
            "digest": np.frombuffer(joined_digest([part.digest for part in distinct]), np.uint64),
            "stats": _stats(stats),
            "nonfinite": sum(int(part.columns.nonfinite[part.row]) for part in distinct),
            "sketch_row": self._sketch(filled) if complete else -1,
            **self._value(filled, complete=complete),
        }

    def _sketch(self, parts: Sequence[Part]) -> int:
        sketches = [part.sketch for part in parts]
        if not sketches or any(sketch is None for sketch in sketches):
            return -1
        self._sketches.append(np.sum([sketch.astype(np.float64) for sketch in sketches], axis=0))
        return len(self._source.sketches) + len(self._sketches) - 1

    def _value(self, parts: Sequence[Part], *, complete: bool) -> dict[str, int]:
        kept = all(part.columns.value_offset[part.row] >= 0 for part in parts)
        if not complete or not kept or not parts:
            return {"value_offset": -1, "value_length": 0}
        name = parts[0].trace.strings[parts[0].columns.dtype[parts[0].row]]
        length = sum(int(part.columns.value_length[part.row]) for part in parts)
        if numpy_dtype(name) is None:
            return {"value_offset": -1, "value_length": 0}
        self._values.append(tuple(parts))
        return {"value_offset": GATHERED + len(self._values) - 1, "value_length": length}

    def columns(self, rows: Any) -> GatheredColumns:
        """All rows, those of other ranks last."""
        arrays: dict[str, Any] = {}
        for each in fields(Columns):
            if each.name not in NOT_ROWS:
                column = getattr(self._source, each.name)
                more = np.zeros((len(self._extra), *column.shape[1:]), column.dtype)
                arrays[each.name] = np.concatenate([column[rows], more])
        changed = [*self._changes, *enumerate(self._extra, len(rows))]
        for at, changes in changed:
            for name, value in changes.items():
                arrays[name][at] = value
        new = np.array(self._sketches, np.float32).reshape(-1, self._source.sketches.shape[1])
        return GatheredColumns(
            **arrays,
            sketches=np.concatenate([self._source.sketches, new]),
            values=self._source.values,
            source=self._source,
            parts=tuple(self._values),
        )


def joined_digest(digests: Sequence[bytes]) -> bytes:
    """One digest of several; zeros where all of them are."""
    if not any(map(any, digests)):
        return NOTHING
    return xxhash.xxh3_128_digest(b"".join(digests))


def _stats(stats: Any) -> tuple[float, float, float]:
    with np.errstate(all="ignore"):
        low = np.fmin.reduce(stats[:, 0])
        high = np.fmax.reduce(stats[:, 1])
        filled = stats[~np.isnan(stats[:, 2]), 2]
    return float(low), float(high), float(np.sqrt(np.sum(filled**2)))
