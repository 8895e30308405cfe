"""Rows of a window in the making: taken over as they are, or what several of them come to."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import xxhash

from traceparity.differ.joined_trace import JOINED, JoinedColumns, JoinedTrace
from traceparity.tracefmt.records import Columns, Flag
from traceparity.tracefmt.rows import scalar_bytes, scalar_digest
from traceparity.tracefmt.tensor_digest import digest_of, seed_of

_NO_STATS = (np.nan, np.nan, np.nan)
_NOT_ROWS = ("sketches", "values")


@dataclass(slots=True)
class _Row:
    """A row to be written: ``base`` with some columns changed."""

    base: int
    call: int
    changes: dict[str, Any] = field(default_factory=dict)


class JoinedRows:
    """The rows of one window."""

    def __init__(self, trace: JoinedTrace, columns: Columns) -> None:
        self._trace = trace
        self._source = columns
        self._rows: list[_Row] = []
        self._values = bytearray(columns.values)
        self._parts: list[tuple[int, ...]] = []

    def take(self, row: int, call: int | None = None) -> None:
        """A row as it is, perhaps with another call number."""
        kept = int(self._source.call[row]) if call is None else call
        self._rows.append(_Row(row, kept))

    def plain(self, base: int, call: int, value: Any, *, decides: bool) -> None:
        """A plain value in the place of a row, as one that decides or only explains.

        Raises:
            ValueError: It is longer than a plain value may be.
        """
        encoded = scalar_bytes(value)
        changes = self._inline(base, call, encoded, scalar_digest(encoded))
        explains = 0 if decides else int(Flag.CONTEXT)
        changes["flags"] = int(self._source.flags[base]) & ~int(Flag.CONTEXT) | explains

    def computed(self, base: int, call: int, data: bytes, dtype: str) -> None:
        """A tensor with computed elements in the place of a row."""
        shape = self._trace.source.shapes[int(self._source.shape[base])]
        changes = self._inline(base, call, data, digest_of(data, dtype, shape))
        changes |= {"stats": _NO_STATS, "sketch_row": -1}

    def fingerprint(self, base: int, call: int, digest: bytes, shape: tuple[int, ...]) -> None:
        """A tensor of which nothing is known but a fingerprint."""
        changes = self._tensor(shape, digest)
        changes |= {"value_offset": -1, "value_length": 0}
        self._rows.append(_Row(base, call, changes))

    def joined(self, parts: Sequence[int], call: int, dtype: str, shape: tuple[int, ...]) -> None:
        """A tensor made of those of several rows, one after the other; all values were kept."""
        source, rows = self._source, list(parts)
        changes = self._tensor(shape, self.joined_digest(rows, dtype, shape))
        low, high, norm = source.stats[rows].astype(np.float64).T
        changes["stats"] = (low.min(), high.max(), np.sqrt(np.sum(norm**2)))
        changes["nonfinite"] = int(source.nonfinite[rows].sum())
        flags = np.bitwise_or.reduce(source.flags[rows]) & ~np.uint16(Flag.EXTERNAL_VALUE)
        changes["flags"] = int(flags)
        changes["value_offset"] = JOINED + len(self._parts)
        changes["value_length"] = int(source.value_length[rows].sum())
        self._parts.append(tuple(rows))
        self._rows.append(_Row(rows[0], call, changes))

    def joined_digest(self, parts: Sequence[int], dtype: str, shape: tuple[int, ...]) -> bytes:
        """The digest of a tensor made of those of several rows."""
        hasher = xxhash.xxh3_128(seed=seed_of(dtype, shape))
        for row in parts:
            for piece in self._trace.source.value_pieces(self._source, row):
                hasher.update(piece)
        return hasher.digest()

    def _tensor(self, shape: tuple[int, ...], digest: bytes) -> dict[str, Any]:
        return {
            "shape": self._trace.shape(shape),
            "digest": np.frombuffer(digest, np.uint64),
            "sketch_row": -1,
            "stats": _NO_STATS,
        }

    def _inline(self, base: int, call: int, data: bytes, digest: bytes) -> dict[str, Any]:
        changes: dict[str, Any] = {
            "digest": np.frombuffer(digest, np.uint64),
            "value_offset": len(self._values),
            "value_length": len(data),
        }
        self._values += data
        self._rows.append(_Row(base, call, changes))
        return changes

    def columns(self) -> JoinedColumns:
        """The rows in the order in which the window had them."""
        rows = sorted(self._rows, key=lambda row: row.base)
        base = np.array([row.base for row in rows], np.int64)
        arrays = {
            each.name: getattr(self._source, each.name)[base]
            for each in fields(Columns)
            if each.name not in _NOT_ROWS
        }
        arrays["call"] = np.array([row.call for row in rows], np.uint32)
        arrays["microbatch"] = np.zeros(len(rows), np.uint32)
        for index, row in enumerate(rows):
            for name, value in row.changes.items():
                arrays[name][index] = value
        return JoinedColumns(
            **arrays,
            sketches=self._source.sketches,
            values=bytes(self._values),
            source=self._source,
            parts=tuple(self._parts),
        )
