"""What a trace is to say, as plain values: written to a file, and read back to compare."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from traceparity.tracefmt.reader import Trace
from traceparity.tracefmt.records import SKETCH_WIDTH, Columns, Flag, Header, Kind, Phase
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.writer import Writer

NO_STATS = struct.pack("<3f", *[float("nan")] * 3)


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation with everything that a trace says of it; numbers as their bits."""

    phase: Phase = Phase.FORWARD
    component: str = "layer"
    field: str = "output[0]"
    location: str = "train.py:1"
    kind: Kind = Kind.TENSOR
    call: int = 0
    microbatch: int = 0
    flags: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    shape: tuple[int, ...] = (2, 3)
    digest: bytes = bytes(range(16))
    stats: bytes = NO_STATS
    nonfinite: int = 0
    sketch: bytes | None = None
    value: bytes | None = None
    external: bool = False
    whole: tuple[int, ...] = ()
    offset: tuple[int, ...] = ()
    layout: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a story."""

    number: int
    seen: tuple[Seen, ...]
    tail: bool = False
    micro_batches: int = 1
    parameters_digest: bytes = bytes(16)


@dataclass(frozen=True, slots=True)
class Told:
    """What a reader finds in a trace."""

    steps: dict[int, Step] = field(default_factory=dict)
    damaged: frozenset[int] = frozenset()


def scalar(value: Any, name: str = "lr", **others: Any) -> Seen:
    """The observation of a plain value."""
    encoded = scalar_bytes(value)
    told = {"phase": Phase.OPTIMIZER, "component": "optimizer[0]", "kind": Kind.SCALAR} | others
    return Seen(
        field=name,
        dtype="",
        device="",
        shape=(),
        digest=xxhash.xxh3_128_digest(encoded, seed=0x5CA1A2),
        value=encoded,
        **told,
    )


def sketch(start: float = 0.0) -> bytes:
    """Sixty-one numbers."""
    return struct.pack(f"<{SKETCH_WIDTH}f", *(start + number for number in range(SKETCH_WIDTH)))


def add(writer: Writer, rows: Rows, seen: Seen) -> None:
    """Append an observation to rows."""
    site = writer.site(seen.phase, seen.component, seen.field, seen.location)
    if seen.kind != Kind.TENSOR:
        assert seen.value is not None
        rows.plain(site, seen.call, seen.microbatch, seen.kind, seen.flags, seen.value)
        return
    inline = external = None
    if seen.value is not None and seen.external:
        external = writer.value(seen.digest, seen.value)
    else:
        inline = seen.value
    rows.tensor(
        site,
        seen.call,
        seen.microbatch,
        seen.flags,
        writer.string(seen.dtype),
        writer.string(seen.device),
        writer.shape(seen.shape),
        seen.digest,
        struct.unpack("<3f", seen.stats),
        seen.nonfinite,
        seen.sketch,
        inline,
        external,
        (writer.shape(seen.whole), writer.shape(seen.offset), writer.string(seen.layout)),
    )


def write_step(writer: Writer, step: Step, *, parts: int = 1, last: bool = True) -> None:
    """Write a step, in several parts where asked for."""
    size = max(-(-len(step.seen) // parts), 1)
    pieces = [step.seen[at : at + size] for at in range(0, max(len(step.seen), 1), size)]
    for number, piece in enumerate(pieces, 1):
        rows = Rows()
        for seen in piece:
            add(writer, rows, seen)
        writer.write(
            step.number,
            rows,
            last=last and number == len(pieces),
            tail=step.tail,
            micro_batches=step.micro_batches,
            parameters_digest=step.parameters_digest,
        )


def write(
    path: Path, steps: Iterable[Step], *, header: Header | None = None, parts: int = 1
) -> Path:
    """Write a complete trace."""
    writer = Writer(path, lambda: header or Header(program="train.py"))
    for step in steps:
        write_step(writer, step, parts=parts)
    writer.close()
    return path


def read_step(trace: Trace, number: int) -> Step:
    """A step as a trace tells it."""
    columns = trace.columns(number)
    entries = [*trace.steps, *([trace.unfinished] if trace.unfinished else [])]
    entry = next(entry for entry in entries if entry.number == number)
    return Step(
        number,
        tuple(_seen(trace, columns, row) for row in range(len(columns))),
        entry.tail,
        entry.micro_batches,
        entry.parameters_digest,
    )


def _seen(trace: Trace, columns: Columns, row: int) -> Seen:
    entry = trace.sites[columns.site[row]]
    sketch_row, flags = int(columns.sketch_row[row]), int(columns.flags[row])
    return Seen(
        phase=entry.site.phase,
        component=entry.site.component,
        field=entry.site.field,
        location=entry.location,
        kind=Kind(int(columns.kind[row])),
        call=int(columns.call[row]),
        microbatch=int(columns.microbatch[row]),
        flags=flags & ~int(Flag.EXTERNAL_VALUE),
        dtype=trace.strings[columns.dtype[row]],
        device=trace.strings[columns.device[row]],
        shape=trace.shapes[columns.shape[row]],
        digest=columns.digest[row].tobytes(),
        stats=columns.stats[row].tobytes(),
        nonfinite=int(columns.nonfinite[row]),
        sketch=None if sketch_row < 0 else columns.sketches[sketch_row].tobytes(),
        value=trace.value(columns, row),
        external=bool(flags & Flag.EXTERNAL_VALUE),
        whole=trace.shapes[columns.whole[row]],
        offset=trace.shapes[columns.offset[row]],
        layout=trace.strings[columns.layout[row]],
    )


_SHARD: dict[str, Any] = {
    "flags": int(Flag.SHARDED), "whole": (8,), "offset": (6,), "layout": "Shard(dim=0) on dp=8",
}  # fmt: skip


def sample(steps: int = 3) -> Sequence[Step]:
    """A story with something of everything."""
    return [
        Step(
            number,
            (
                scalar([3, 1, "four", None], "sample_ids", phase=Phase.DATA, kind=Kind.SAMPLE_IDS),
                scalar("f00f", "digest", phase=Phase.STATE, flags=Flag.CONTEXT),
                Seen(digest=bytes([number]) * 16, sketch=sketch(number), stats=bytes(12)),
                Seen(call=1, digest=bytes([number + 1]) * 16, value=b"\x01\x02\x03\x04"),
                Seen(component=f"block.{number}", shape=(number,), nonfinite=9, microbatch=1,
                     **_SHARD if number == 1 else {}),
                Seen(phase=Phase.GRADIENT, field="grad", value=bytes(range(200)), external=True,
                     digest=bytes([7, number]) * 8, dtype="bfloat16", device="cuda:0"),
                scalar({"lr": 0.1, "betas": [0.9, 0.999]}, flags=Flag.STATEFUL),
                scalar(True, "skipped", kind=Kind.MARKER),
            ),
            tail=number == steps - 1,
            micro_batches=number + 1,
            parameters_digest=bytes([number]) * 16,
        )
        for number in range(steps)
    ]  # fmt: skip
