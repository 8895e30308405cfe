"""Traces that are large on the outside: their records lie far apart, in a file full of holes."""

from pathlib import Path

import numpy as np

from traceparity.tracefmt import framing
from traceparity.tracefmt.framing import Compressor, RecordKind
from traceparity.tracefmt.index import Footer, Steps, pack_footer
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import SKETCH_WIDTH, Header, Kind, Phase
from traceparity.tracefmt.rows import ROW, Rows
from traceparity.tracefmt.source import open_file
from traceparity.tracefmt.tables import AT_FIRST, reinterned
from traceparity.tracefmt.writer import Writer

STEPS, TENSORS = 40, 800
GIGABYTE = 1 << 30


def write(path: Path, *, other_steps: tuple[int, ...] = ()) -> Path:
    """A trace of 40 steps with 250 kB each, of which some have other values."""
    kept = {"digest": "xxh3-128", "capture": "sketch"}
    writer = Writer(path, lambda: Header(program="train.py", capture=kept))
    table = np.zeros(TENSORS, ROW)
    table["site"] = [
        writer.site(Phase.FORWARD, f"blocks.{at}", "output[0]") for at in range(TENSORS)
    ]
    table["kind"], table["value_offset"] = Kind.TENSOR, -1
    table["dtype"], table["device"] = writer.string("float32"), writer.string("cpu")
    table["shape"], table["stats"] = writer.shape((64, 64)), (-1.0, 1.0, 8.0)
    table["sketch_row"] = np.arange(TENSORS)
    random = np.random.default_rng(0)
    for step in range(STEPS):
        table["digest"] = random.integers(1 << 63, size=(TENSORS, 2), dtype=np.uint64)
        sketches = random.standard_normal((TENSORS, SKETCH_WIDTH), np.float32)
        if step in other_steps:
            table["digest"][700:] += np.uint64(1)
        rows = Rows()
        rows.data += table.tobytes()
        rows.sketches += sketches.tobytes()
        writer.write(step, rows)
    writer.close()
    return path


def spread(path: Path, size: int = GIGABYTE) -> Path:
    """Move the records of a trace apart until it is a file of a given size, without its bytes."""
    with open_trace(path) as trace:
        steps, interned = trace._all_steps, reinterned(trace._tables)
    source = open_file(path)
    _, head = framing.read_beginning(source)
    header = framing.read_payload(source, head)
    chunks = steps.chunks.copy()
    chunks["offset"] = np.linspace(head.end, size, len(chunks)).astype(np.uint64)
    far, pack = path.with_suffix(".far"), Compressor().record
    with far.open("wb") as stream:
        stream.write(source.read_at(0, head.end))
        for old, new in zip(
            steps.chunks["offset"].tolist(), chunks["offset"].tolist(), strict=True
        ):
            chunk = framing.read_head(source, old)
            stream.seek(new)
            stream.write(pack(RecordKind.CHUNK, framing.read_payload(source, chunk), new))
        moved = Steps(steps.table, chunks)
        end = stream.tell()
        footer = Footer(moved, True, "", moved.content_digest(), header)
        stream.write(pack(RecordKind.FOOTER, pack_footer(footer, interned.pack(AT_FIRST)), end))
        stream.write(framing.trailer_bytes(end))
    source.close()
    far.rename(path)
    return path
