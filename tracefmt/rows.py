"""Rows in the making: observations as they are appended, before they become columns.

The recorder appends in its hot path, so a row is one packed struct in a bytearray, not an object.
"""

import struct
from typing import Any

import msgpack
import numpy as np
import xxhash

from traceparity.tracefmt.records import SKETCH_WIDTH, Flag, Kind

ROW = np.dtype(
    [
        ("site", "<u4"),
        ("call", "<u4"),
        ("microbatch", "<u4"),
        ("kind", "u1"),
        ("flags", "<u2"),
        ("dtype", "<u2"),
        ("device", "<u2"),
        ("shape", "<u4"),
        ("digest", "<u8", 2),
        ("stats", "<f4", 3),
        ("nonfinite", "<u4"),
        ("sketch_row", "<i4"),
        ("value_offset", "<i8"),
        ("value_length", "<u8"),
    ]
)
_PACK = struct.Struct("<IIIBHHHI16sfffIiqQ").pack
_NO_STATS = (float("nan"),) * 3
_SCALAR_SEED = 0x5CA1A2
"""Keeps the digest of a scalar apart from that of a tensor with the same bytes."""


def scalar_bytes(value: Any) -> bytes:
    """The canonical encoding of a plain value: msgpack with sorted keys.

    Raises:
        TypeError: The value is no plain data.
        OverflowError: An integer needs more than 64 bits.
    """
    packed = msgpack.packb(_sorted(value), use_bin_type=True)
    assert packed is not None  # noqa: S101 - packb returns None only when it is given a buffer
    return bytes(packed)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


def scalar_digest(encoded: bytes) -> bytes:
    """The digest of a plain value from its canonical encoding."""
    return xxhash.xxh3_128_digest(encoded, seed=_SCALAR_SEED)


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
        """
        sketch_row = -1
        if sketch is not None:
            sketch_row = len(self.sketches) // (4 * SKETCH_WIDTH)
            self.sketches += sketch
        offset, length = -1, 0
        if value is not None:
            offset, length = len(self.values), len(value)
            self.values += value
        elif external is not None:
            offset, length = external
            flags |= Flag.EXTERNAL_VALUE
        self.data += _PACK(
            site, call, microbatch, Kind.TENSOR, flags, dtype, device, shape, digest,
            *stats, nonfinite, sketch_row, offset, length,
        )  # fmt: skip

    def plain(
        self, site: int, call: int, microbatch: int, kind: int, flags: int, encoded: bytes
    ) -> None:
        """Append a scalar, a marker or sample IDs from the canonical encoding."""
        offset = len(self.values)
        self.values += encoded
        self.data += _PACK(
            site, call, microbatch, kind, flags, 0, 0, 0, scalar_digest(encoded),
            *_NO_STATS, 0, -1, offset, len(encoded),
        )  # fmt: skip

    def extend(
        self, other: "Rows", *, microbatch: int | None = None, without: int = 0
    ) -> None:
        """Append all rows of ``other``, flags taken off and the micro-batch set where given."""
        if not other.data:
            return
        table = np.frombuffer(bytes(other.data), ROW).copy()
        inside = (table["value_offset"] >= 0) & (table["flags"] & Flag.EXTERNAL_VALUE == 0)
        table["value_offset"][inside] += len(self.values)
        table["sketch_row"][table["sketch_row"] >= 0] += len(self.sketches) // (4 * SKETCH_WIDTH)
        table["flags"] &= 0xFFFF ^ without
        if microbatch is not None:
            table["microbatch"] = microbatch
        self.data += table.tobytes()
        self.sketches += other.sketches
        self.values += other.values

    def table(self) -> np.ndarray[Any, Any]:
        """The rows as a structured array of dtype `ROW` (a copy)."""
        return np.frombuffer(bytes(self.data), ROW)

    def clear(self) -> None:
        """Forget all rows."""
        self.data.clear()
        self.sketches.clear()
        self.values.clear()
