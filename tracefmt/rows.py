"""Rows in the making: observations as they are appended, before they become columns.

The recorder appends in its hot path, so a row is one packed struct in a bytearray, not an object.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from traceparity.tracefmt import limits
from traceparity.tracefmt.plain import encode_plain
from traceparity.tracefmt.records import SKETCH_WIDTH, Flag, Kind

ROW = np.dtype(
    [
        ("site", "<u4"),
        ("call", "<u4"),
        ("microbatch", "<u4"),
        ("kind", "u1"),
        ("flags", "<u2"),
        ("dtype", "<u4"),
        ("device", "<u4"),
        ("shape", "<u4"),
        ("whole", "<u4"),
        ("offset", "<u4"),
        ("layout", "<u4"),
        ("digest", "<u8", 2),
        ("stats", "<f4", 3),
        ("nonfinite", "<u4"),
        ("sketch_row", "<i4"),
        ("value_offset", "<i8"),
        ("value_length", "<u8"),
    ]
)
"""A row as it lies in memory; each field is a column of a chunk, with this type."""
_PACK = struct.Struct("<IIIBHIIIIII16sfffIiqQ").pack
_WHOLE = (0, 0, 0)
_NO_STATS = (math.nan, math.nan, math.nan)
_SKETCH_BYTES = 4 * SKETCH_WIDTH
_LARGEST_SINGLE = float(np.finfo(np.float32).max)
_SCALAR_SEED = 0x5CA1A2
"""Keeps the digest of a scalar apart from that of a tensor with the same bytes."""


def scalar_bytes(value: Any) -> bytes:
    """The canonical encoding of a plain value; see `encode_plain`.

    Raises:
        TypeError: The value is no plain data.
        ValueError: It is longer than a plain value may be, or nested too deeply.
        OverflowError: An integer needs more than 64 bits.
    """
    return encode_plain(value)


def scalar_digest(encoded: bytes) -> bytes:
    """The digest of a plain value from its canonical encoding."""
    return xxhash.xxh3_128_digest(encoded, seed=_SCALAR_SEED)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that go into one chunk.

    Attributes:
        table: Structured array of dtype `ROW`.
        sketches: The sketches that it refers to.
        values: The kept values that it refers to.
    """

    table: npt.NDArray[np.void]
    sketches: bytes
    values: bytes


class Rows:
    """Observations of a step, or of a part of it, in execution order."""

    __slots__ = ("data", "sketches", "values")

    def __init__(self) -> None:
        self.data = bytearray()
        self.sketches = bytearray()
        self.values = bytearray()

    def __len__(self) -> int:
        return len(self.data) // ROW.itemsize

    @property
    def size(self) -> int:
        """Bytes held."""
        return len(self.data) + len(self.sketches) + len(self.values)

    def tensor(
        self,
        site: int,
        call: int,
        microbatch: int,
        flags: int,
        dtype: int,
        device: int,
        shape: int,
        digest: bytes,
        stats: tuple[float, float, float] = _NO_STATS,
        nonfinite: int = 0,
        sketch: Any = None,
        value: bytes | None = None,
        external: tuple[int, int] | None = None,
        shard: tuple[int, int, int] = _WHOLE,
    ) -> None:
        """Append a tensor summary.

        Args:
            site: Id of the site.
            call: The how-manyth time it was seen in its micro-batch.
            microbatch: Number of the micro-batch.
            flags: `Flag` bits.
            dtype: String id.
            device: String id.
            shape: Shape id.
            digest: 16 bytes.
            stats: Minimum, maximum, L2 norm.
            nonfinite: Infinities and NaNs.
            sketch: A buffer of 61 float32, or None.
            value: The tensor's bytes, to be kept in the chunk.
            external: Offset and length of the tensor's bytes in value records.
            shard: Of a shard the shape ids of the whole tensor and of the shard's place in it, and
                the string id of the layout.

        Raises:
            ValueError: The value is too long for a chunk.
        """
        sketch_row = -1
        if sketch is not None:
            sketch_row = len(self.sketches) // _SKETCH_BYTES
            self.sketches += sketch
        offset, length = -1, 0
        if value is not None:
            if len(value) > limits.MAX_INLINE:
                raise ValueError("a long value goes to value records: use Writer.value")
            offset, length = len(self.values), len(value)
            self.values += value
        elif external is not None:
            offset, length = external
            flags |= Flag.EXTERNAL_VALUE
        first = (site, call, microbatch, Kind.TENSOR, flags, dtype, device, shape, *shard, digest)
        last = (nonfinite, sketch_row, offset, length)
        try:
            self.data += _PACK(*first, *stats, *last)
        except OverflowError:
            self.data += _PACK(*first, *map(_single, stats), *last)

    def plain(
        self, site: int, call: int, microbatch: int, kind: int, flags: int, encoded: bytes
    ) -> None:
        """Append a scalar, a marker or sample IDs from the canonical encoding."""
        offset = len(self.values)
        self.values += encoded
        self.data += _PACK(
            site, call, microbatch, kind, flags, 0, 0, 0, *_WHOLE, scalar_digest(encoded),
            *_NO_STATS, 0, -1, offset, len(encoded),
        )  # fmt: skip

    def extend(self, other: "Rows", *, microbatch: int | None = None, without: int = 0) -> None:
        """Append all rows of ``other``, flags taken off and the micro-batch set where given."""
        if not other.data:
            return
        table = other.table().copy()
        table["value_offset"][_inside(table)] += len(self.values)
        table["sketch_row"][table["sketch_row"] >= 0] += len(self.sketches) // _SKETCH_BYTES
        table["flags"] &= np.uint16(0xFFFF ^ without)
        if microbatch is not None:
            table["microbatch"] = microbatch
        self.data += table.tobytes()
        self.sketches += other.sketches
        self.values += other.values

    def table(self) -> npt.NDArray[np.void]:
        """The rows as a structured array of dtype `ROW` (a copy)."""
        return np.frombuffer(bytes(self.data), ROW)

    def parts(self, limit: int = limits.PART) -> Iterator[Part]:
        """The rows in pieces of about ``limit`` bytes, in order; at least one piece."""
        table = self.table()
        if self.size <= limit:
            yield Part(table, bytes(self.sketches), bytes(self.values))
            return
        inside = np.where(_inside(table), table["value_length"], 0)
        sketched = np.where(table["sketch_row"] >= 0, _SKETCH_BYTES, 0)
        ends = np.cumsum(inside + sketched + ROW.itemsize, dtype=np.uint64)
        start, before = 0, 0
        while start < len(table):
            stop = max(int(np.searchsorted(ends, before + limit, "right")), start + 1)
            yield self._part(table[start:stop].copy())
            start, before = stop, int(ends[stop - 1])

    def _part(self, table: npt.NDArray[np.void]) -> Part:
        # What rows refer to lies in the order of the rows, so that a part needs one stretch of it.
        values, sketches = b"", b""
        inside = np.flatnonzero(_inside(table))
        if len(inside):
            offsets, lengths = table["value_offset"][inside], table["value_length"][inside]
            begin = int(offsets[0])
            values = bytes(self.values[begin : int(offsets[-1]) + int(lengths[-1])])
            table["value_offset"][inside] -= begin
        sketched = np.flatnonzero(table["sketch_row"] >= 0)
        if len(sketched):
            first, last = table["sketch_row"][sketched[[0, -1]]].tolist()
            sketches = bytes(self.sketches[first * _SKETCH_BYTES : (last + 1) * _SKETCH_BYTES])
            table["sketch_row"][sketched] -= first
        return Part(table, sketches, values)

    def clear(self) -> None:
        """Forget all rows."""
        self.data.clear()
        self.sketches.clear()
        self.values.clear()


def _inside(table: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    external = table["flags"] & np.uint16(Flag.EXTERNAL_VALUE)
    mask: npt.NDArray[np.bool_] = (table["value_offset"] >= 0) & (external == 0)
    return mask


def _single(number: float) -> float:
    """The number, or the infinity that it is in single precision."""
    return math.copysign(math.inf, number) if abs(number) > _LARGEST_SINGLE else number
