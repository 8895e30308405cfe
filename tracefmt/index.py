"""The index: what the footer says of each step, read instead of the chunks.

A step is a row of numbers in memory and a cell of columns on disk; `Steps` gives rows as values.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import xxhash

from traceparity.tracefmt import limits
from traceparity.tracefmt.codec import ChunkInfo
from traceparity.tracefmt.errors import TraceFormatError, TraceLimitError
from traceparity.tracefmt.payload import Fields, pack_map, unpack_map
from traceparity.tracefmt.phase_digest import PhaseDigests
from traceparity.tracefmt.records import Phase, StepEntry
from traceparity.tracefmt.tables import Tables, complete_tables

_PHASES = len(Phase)
_DIGEST = 16
_ALL_DIGESTS = _PHASES * _DIGEST
_BLOCK = 1024
STEP = np.dtype(
    [
        ("number", "<u8"),
        ("tail", "u1"),
        ("whole", "u1"),
        ("micro_batches", "<u4"),
        ("chunks", "<u4"),
        ("observations", "<u4", _PHASES),
        ("parameters_digest", "<u8", 2),
        ("phase_digests", "<u8", (_PHASES, 2)),
    ]
)
"""A step in the index; each field is a column of the footer, with this type."""
CHUNK = np.dtype([("offset", "<u8"), ("length", "<u4")])
"""Where a chunk lies; the chunks of all steps follow one another."""
_JUDGED = np.dtype([("number", "<u8"), ("digests", "<u8", (_PHASES, 2))])
_WHOLE = STEP.fields["whole"][1]  # type: ignore[index]  # a dtype with names has fields
_MOST = 0xFFFFFFFF
_PACK_STEP = struct.Struct(f"<QBBII{_PHASES}I16s{_ALL_DIGESTS}s").pack
_PACK_CHUNK = struct.Struct("<QI").pack


class Steps(Sequence[StepEntry]):
    """The steps of a trace in order, made from the index when asked for.

    Attributes:
        table: One row a step, dtype `STEP`.
        chunks: One row a chunk, dtype `CHUNK`.
    """

    def __init__(self, table: npt.NDArray[np.void], chunks: npt.NDArray[np.void]) -> None:
        self.table = table
        self.chunks = chunks
        # Copies without gaps: a look-up is made for every step.
        self._numbers = np.ascontiguousarray(table["number"])
        self._counts = np.ascontiguousarray(table["chunks"])
        self._ends = np.cumsum(self._counts, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> StepEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StepEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> StepEntry | tuple[StepEntry, ...]:
        if isinstance(index, slice):
            return tuple(self[each] for each in range(*index.indices(len(self))))
        return self._entry(range(len(self))[index])

    def _entry(self, index: int) -> StepEntry:
        return self._entries(index, index + 1)[0]

    def __iter__(self) -> Iterator[StepEntry]:
        for start in range(0, len(self), _BLOCK):
            yield from self._entries(start, min(start + _BLOCK, len(self)))

    def whole(self) -> "Steps":
        """The steps that are in the file as a whole: all but perhaps the last."""
        if not len(self) or self.table["whole"][-1]:
            return self
        return Steps(self.table[:-1], self.chunks[: -int(self.table["chunks"][-1])])

    def places(self, number: int) -> list[tuple[int, int]] | None:
        """Offset and length of each chunk of the step with a number; None where there is none."""
        if not 0 <= number < 1 << 63:
            return None
        index = int(self._numbers.searchsorted(np.uint64(number)))
        if index == len(self) or int(self._numbers[index]) != number:
            return None
        end = int(self._ends[index])
        places: list[tuple[int, int]] = self.chunks[end - int(self._counts[index]) : end].tolist()
        return places

    def _entries(self, start: int, stop: int) -> list[StepEntry]:
        table, ends = self.table[start:stop], self._ends[start:stop].tolist()
        begin = ends[0] - int(table["chunks"][0])
        places = self.chunks[begin : ends[-1]].tolist()
        firsts = [0, *(end - begin for end in ends)]
        phases, parameters = table["phase_digests"].tobytes(), table["parameters_digest"].tobytes()
        columns = zip(
            table["number"].tolist(), table["tail"].tolist(), table["whole"].tolist(),
            table["micro_batches"].tolist(), table["observations"].tolist(), strict=True,
        )  # fmt: skip
        return [
            StepEntry(
                number=number,
                tail=bool(tail),
                chunks=tuple(places[firsts[row] : firsts[row + 1]]),
                observations=tuple(observations),
                phase_digests=tuple(
                    phases[at : at + _DIGEST]
                    for at in range(row * _ALL_DIGESTS, (row + 1) * _ALL_DIGESTS, _DIGEST)
                ),
                parameters_digest=parameters[row * _DIGEST : (row + 1) * _DIGEST],
                micro_batches=micro_batches,
                whole=bool(whole),
            )
            for row, (number, tail, whole, micro_batches, observations) in enumerate(columns)
        ]

    @property
    def observations(self) -> int:
        """Rows of all steps."""
        return int(self.table["observations"].sum(dtype=np.uint64))

    def content_digest(self) -> str:
        """Over everything judged in all whole steps: equal for two runs with equal observations."""
        whole = self.table[self.table["whole"] != 0]
        judged = np.empty(len(whole), _JUDGED)
        judged["number"], judged["digests"] = whole["number"], whole["phase_digests"]
        return str(xxhash.xxh3_128_hexdigest(judged.tobytes()))


class IndexBuilder:
    """The index in the making, chunk by chunk.

    Attributes:
        last: Number of the last step; None before the first, and where it was dropped.
        parts: How many chunks the last step has.
    """

    def __init__(self) -> None:
        self._steps = bytearray()
        self._chunks = bytearray()
        self._digests = PhaseDigests()
        self._previous = (0, 0)
        self.last: int | None = None
        self.parts = 0

    def __len__(self) -> int:
        return len(self._steps) // STEP.itemsize

    @property
    def last_is_whole(self) -> bool:
        """Whether the last step was ended."""
        return bool(self._steps[_WHOLE - STEP.itemsize])

    @property
    def observations(self) -> int:
        """Rows of all steps."""
        table = np.frombuffer(bytes(self._steps), STEP)
        return int(table["observations"].sum(dtype=np.uint64))

    def place(self, step: int) -> tuple[int, int, int]:
        """What a next chunk of ``step`` says of its place: part, previous step and its parts.

        Raises:
            ValueError: The step is before the last one.
            TraceLimitError: There are too many steps.
        """
        if step == self.last:
            return (self.parts, *self._previous)
        if self.last is None:
            return 0, 0, 0
        if step < self.last:
            raise ValueError(f"step {step} comes after step {self.last}")
        if len(self) >= limits.MAX_STEPS:
            raise TraceLimitError(f"a trace holds at most {limits.MAX_STEPS} steps")
        return 0, self.last, self.parts

    def digests_for(self, step: int) -> PhaseDigests:
        """The digests that the next chunk of ``step`` goes into; for `add` to take over."""
        return self._digests.copy() if step == self.last else PhaseDigests()

    def add(self, info: ChunkInfo, digests: PhaseDigests, offset: int, length: int) -> None:
        """Take in a chunk that was written or read; the chunk of a new step ends the one before."""
        same = info.step == self.last
        parts = self.parts + 1 if same else 1
        row = _PACK_STEP(
            info.step, info.tail, info.last, min(info.micro_batches, _MOST), parts,
            *(min(count, _MOST) for count in digests.counts),
            info.parameters_digest, b"".join(digests.digests()),
        )  # fmt: skip
        place = _PACK_CHUNK(offset, length)
        if same:
            del self._steps[-STEP.itemsize :]
        elif self._steps:
            self._steps[_WHOLE - STEP.itemsize] = True
        self._steps += row
        self._chunks += place
        self._previous = (info.previous_step, info.previous_parts)
        self._digests, self.last, self.parts = digests, info.step, parts

    def mark(self) -> tuple[Any, ...]:
        """What `restore` needs to undo later additions."""
        last_row = bytes(self._steps[-STEP.itemsize :])
        sizes = len(self._steps), len(self._chunks)
        return last_row, sizes, self.last, self.parts, self._previous, self._digests

    def restore(self, mark: tuple[Any, ...]) -> None:
        """Forget what was added since a mark."""
        last_row, (steps, chunks), self.last, self.parts, self._previous, self._digests = mark
        del self._chunks[chunks:]
        self._steps[max(steps - STEP.itemsize, 0) :] = last_row

    def drop_last(self) -> None:
        """Forget the last step: a part of it is lost."""
        del self._steps[-STEP.itemsize :]
        del self._chunks[-CHUNK.itemsize * self.parts :]
        self.last, self.parts, self._digests = None, 0, PhaseDigests()

    def newest(self) -> StepEntry:
        """The last step as far as it is there; there must be one."""
        rows, places = self._steps[-STEP.itemsize :], self._chunks[-CHUNK.itemsize * self.parts :]
        return Steps(np.frombuffer(bytes(rows), STEP), np.frombuffer(bytes(places), CHUNK))[0]

    def steps(self) -> Steps:
        """The index so far."""
        return Steps(
            np.frombuffer(bytes(self._steps), STEP), np.frombuffer(bytes(self._chunks), CHUNK)
        )


@dataclass(frozen=True, slots=True)
class Footer:
    """What the end of a trace says.

    Attributes:
        steps: The steps in order.
        complete: Whether the recording ended as it should.
        reason: Why it did not; empty for a complete trace.
        content_digest: 32 hexadecimal digits over the judged observations of all whole steps.
        header: The payload of the header record, in case that record is damaged.
        noise: What is kept of `traceparity.tracefmt.noise`; empty where nothing was measured.
    """

    steps: Steps
    complete: bool
    reason: str
    content_digest: str
    header: bytes
    noise: bytes = b""


def pack_footer(footer: Footer, tables: Mapping[str, Any]) -> bytes:
    """The payload of the footer record."""
    steps = footer.steps
    return pack_map(
        {
            "complete": footer.complete,
            "reason": footer.reason.encode("utf-8", "backslashreplace")[:4096].decode(
                "utf-8", "ignore"
            ),
            "content_digest": footer.content_digest,
            "header": footer.header,
            "steps": len(steps),
            "columns": {name: steps.table[name].tobytes() for name in STEP.names or ()},
            "chunk_offset": steps.chunks["offset"].tobytes(),
            "chunk_length": steps.chunks["length"].tobytes(),
            "tables": tables,
            **({"noise": footer.noise} if footer.noise else {}),
        }
    )


def unpack_footer(payload: bytes, start: int, end: int) -> tuple[Footer, Tables]:
    """The footer and the complete tables of a file whose chunks lie between two offsets.

    Raises:
        TraceFormatError: The footer is damaged.
    """
    fields = unpack_map(payload, "footer")
    tables = complete_tables(fields.fields("tables"))
    footer = Footer(
        steps=_steps(fields, start, end),
        complete=fields.boolean("complete"),
        reason=fields.text("reason"),
        content_digest=fields.text("content_digest"),
        header=fields.data("header"),
        noise=fields.data("noise") if fields.has("noise") else b"",
    )
    return footer, tables


def _steps(fields: Fields, start: int, end: int) -> Steps:
    count, columns = fields.natural("steps"), fields.fields("columns")
    if count > limits.MAX_STEPS:
        raise fields.error(f"{count} steps (limit {limits.MAX_STEPS})")
    table = np.empty(count, STEP)
    for name in STEP.names or ():
        table[name] = columns.array(name, STEP[name], count)
    offsets = fields.array("chunk_offset", "<u8")
    chunks = np.empty(len(offsets), CHUNK)
    chunks["offset"] = offsets
    chunks["length"] = fields.array("chunk_length", "<u4", len(offsets))
    _check_order(table, chunks, start, end)
    return Steps(table, chunks)


def _check_order(
    table: npt.NDArray[np.void], chunks: npt.NDArray[np.void], start: int, end: int
) -> None:
    numbers, counts = table["number"], table["chunks"].astype(np.uint64)
    offsets = chunks["offset"]
    # Offsets are below the file's size, so that an end cannot overflow.
    inside = int(offsets.max(initial=0)) <= end
    ends = offsets + chunks["length"] if inside else offsets
    sound = (
        inside
        and int(numbers.max(initial=0)) < 1 << 63
        and bool((numbers[1:] > numbers[:-1]).all())
        and bool((table["tail"] <= 1).all() and (table["whole"] <= 1).all())
        and bool((table["whole"][:-1] == 1).all())
        and bool((counts > 0).all())
        and int(counts.sum()) == len(chunks)
        and int(offsets.min(initial=end)) >= start
        and int(ends.max(initial=0)) <= end
        and bool((offsets[1:] >= ends[:-1]).all())
    )
    if not sound:
        raise TraceFormatError("the index is damaged: its steps or chunks are out of order")
