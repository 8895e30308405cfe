"""Summaries of tensors on a device: computed there at once, fetched when a step is written.

Waiting for a device at each tensor would undo what makes it fast. So a row of a tensor on a device
is written with a token in place of its digest, and the numbers that belong there are queued on the
device, in the order of the program's own work. `settle` fetches them, one copy for each stream.
"""

import contextlib
import itertools
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xxhash

from traceparity.recorder.sketch import Sketcher
from traceparity.recorder.word_digest import LANES, WordDigester
from traceparity.tracefmt.records import SKETCH_WIDTH, Flag
from traceparity.tracefmt.rows import ROW, Rows

MOST = 4096
"""Tensors after which the numbers are fetched even in the midst of a step."""
_MARK_BYTES = b"\xffpending"
_MARK = int.from_bytes(_MARK_BYTES, "little")
_TOKEN = struct.Struct("<QQ").pack
_NO_STATS = (math.nan, math.nan, math.nan)
_SKETCH_BYTES = 4 * SKETCH_WIDTH


@dataclass(frozen=True, slots=True)
class _Queued:
    """A tensor in the queue, and its numbers as int64 on the device.

    They are the lanes; then for a small tensor its bytes, else non-finite count, minimum and
    maximum, norm and nothing, and where it has one the sketch and nothing, each two in one.
    """

    number: int
    seed: int
    dtype: torch.dtype
    size: int
    numbers: torch.Tensor


@dataclass(frozen=True, slots=True)
class Settled:
    """What was fetched of a tensor."""

    digest: bytes
    stats: tuple[float, float, float]
    nonfinite: int
    sketch: bytes | None
    value: bytes | None


Numbers = Callable[[torch.Tensor], tuple[tuple[float, float, float], int, bytes | None]]


class Pending:
    """The queue of one recording."""

    def __init__(self, small: int, numbers: Numbers, *, sketched: bool) -> None:
        """Start with an empty queue.

        Args:
            small: Bytes up to which a tensor's value is kept.
            numbers: Statistics and non-finite count of a small tensor on the CPU.
            sketched: Whether larger ones have a sketch.
        """
        self._small = small
        self._numbers = numbers
        self._sketched = sketched
        self._count = itertools.count()
        self._digesters: dict[torch.device, WordDigester] = {}
        self._sketchers: dict[torch.device, Sketcher] = {}
        self._queues: dict[Any, list[_Queued]] = {}
        self._waiting = 0
        self._settled: dict[int, Settled] = {}
        self._before: dict[int, Settled] = {}
        self._news: dict[tuple[int, int], bytes] = {}

    def add(self, dense: torch.Tensor, seed: int) -> bytes:
        """Queue a contiguous tensor; the token that stands for its digest."""
        if self._waiting >= MOST:
            self._fetch()
        device, number, size = dense.device, next(self._count), dense.nbytes
        digester = self._digesters.get(device)
        if digester is None:
            digester = self._digesters[device] = WordDigester(device)
        more = self._bytes_of(dense) if size <= self._small else self._statistics(dense)
        numbers = torch.cat([digester.lanes(dense), *more])
        queue = self._queues.setdefault((device, _stream(device), len(numbers)), [])
        queue.append(_Queued(number, seed, dense.dtype, size, numbers))
        self._waiting += 1
        return _TOKEN(_MARK, number)

    def only_news(self, site: int, token: bytes, before: bytes) -> None:
        """Leave the row of a token at a site out if its digest turns out to be ``before``."""
        self._news[site, _number(token)] = before

    def digest(self, digest: bytes) -> bytes | None:
        """A digest, be it settled in the meantime; None where its numbers are gone."""
        if not is_token(digest):
            return digest
        found = self._found(_number(digest))
        return None if found is None else found.digest

    def forget(self) -> None:
        """A step began: what was fetched in the one before last is no longer asked for."""
        self._before, self._settled = self._settled, {}

    def settle(self, rows: Rows) -> int:
        """Put the numbers into the rows; those that turn out to be no news are taken out.

        Returns:
            How many rows were lost, since their numbers are gone.
        """
        table = np.frombuffer(bytes(rows.data), ROW).copy()
        tokens = np.flatnonzero(table["digest"][:, 0] == np.uint64(_MARK))
        if not len(tokens):
            return 0
        self._fetch()
        keep = np.ones(len(table), np.bool_)
        lost = 0
        for at in tokens.tolist():
            row = table[at]
            number = int(row["digest"][1])
            found = self._found(number)
            if found is None:
                lost += 1
                keep[at] = False
                continue
            before = self._news.get((int(row["site"]), number))
            if before is not None and self.digest(before) == found.digest:
                keep[at] = False
            else:
                _fill(row, found, rows)
        self._news.clear()
        rows.data[:] = table[keep].tobytes()
        return lost

    def _found(self, number: int) -> Settled | None:
        return self._settled.get(number) or self._before.get(number)

    # -- on the device, not awaited -----------------------------------------------------------

    def _bytes_of(self, dense: torch.Tensor) -> list[torch.Tensor]:
        padded = torch.zeros(-(-self._small // 8) * 8, dtype=torch.uint8, device=dense.device)
        if dense.numel():
            padded[: dense.nbytes] = dense.view(-1).view(torch.uint8)
        return [padded.view(torch.int64)]

    def _statistics(self, dense: torch.Tensor) -> list[torch.Tensor]:
        dtype, device = dense.dtype, dense.device
        nonfinite = torch.zeros(1, dtype=torch.int64, device=device)
        numbers = torch.full((4,), math.nan, device=device)
        parts = [nonfinite, numbers.view(torch.int64)]
        if dtype is torch.bool:
            return parts
        if not dtype.is_floating_point and not dtype.is_complex:
            numbers[:2] = torch.stack(torch.aminmax(dense)).to(torch.float32)
            return parts
        flat = torch.view_as_real(dense).view(-1) if dtype.is_complex else dense.view(-1)
        flat = flat.to(torch.float32)
        numbers[2] = torch.linalg.vector_norm(flat)
        nonfinite[0] = flat.numel() - flat.isfinite().sum()
        if self._sketched:
            numbers[:2] = torch.stack(torch.aminmax(flat))
            sketch = torch.zeros(SKETCH_WIDTH + 1, device=device)
            sketch[:SKETCH_WIDTH] = self._sketcher(device).sketch(flat)
            parts.append(sketch.view(torch.int64))
        return parts

    def _sketcher(self, device: torch.device) -> Sketcher:
        found = self._sketchers.get(device)
        if found is None:
            found = self._sketchers[device] = Sketcher(device)
        return found

    # -- back from it -------------------------------------------------------------------------

    def _fetch(self) -> None:
        for (_, stream, _), queue in self._queues.items():
            with contextlib.nullcontext() if stream is None else torch.cuda.stream(stream):
                fetched = torch.stack([queued.numbers for queued in queue]).cpu().numpy()
            for queued, numbers in zip(queue, fetched, strict=True):
                self._settled[queued.number] = self._result(queued, numbers)
        self._queues.clear()
        self._waiting = 0

    def _result(self, queued: _Queued, numbers: npt.NDArray[np.int64]) -> Settled:
        digest = xxhash.xxh3_128_digest(numbers[:LANES].tobytes(), queued.seed)
        rest = numbers[LANES:]
        if queued.size <= self._small:
            value = rest.tobytes()[: queued.size]
            if not value:
                return Settled(digest, _NO_STATS, 0, None, value)
            stats, nonfinite, _ = self._numbers(
                torch.frombuffer(bytearray(value), dtype=queued.dtype)
            )
            return Settled(digest, stats, nonfinite, None, value)
        low, high, norm, _ = rest[1:3].view(np.float32).tolist()
        sketch = rest[3:].tobytes()[:_SKETCH_BYTES] or None
        return Settled(digest, (low, high, norm), int(rest[0]), sketch, None)


def is_token(digest: bytes) -> bool:
    """Whether a digest is a token that stands for one."""
    return digest[:8] == _MARK_BYTES


def _number(token: bytes) -> int:
    return int.from_bytes(token[8:], "little")


def _stream(device: torch.device) -> Any:
    return torch.cuda.current_stream(device) if device.type == "cuda" else None


def _fill(row: Any, found: Settled, rows: Rows) -> None:
    row["digest"] = np.frombuffer(found.digest, np.uint64)
    row["stats"] = found.stats
    row["nonfinite"] = found.nonfinite
    if found.nonfinite:
        row["flags"] |= np.uint16(Flag.NONFINITE)
    if found.sketch is not None and row["sketch_row"] >= 0:
        start = int(row["sketch_row"]) * _SKETCH_BYTES
        rows.sketches[start : start + _SKETCH_BYTES] = found.sketch
    if found.value is not None and row["value_offset"] >= 0:
        start = int(row["value_offset"])
        rows.values[start : start + len(found.value)] = found.value
