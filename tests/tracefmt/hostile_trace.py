"""Files with sound checksums and wrong contents: an attacker can compute checksums as we can."""

import contextlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import xxhash

from traceparity.tracefmt import framing
from traceparity.tracefmt.codec import pack_header
from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.framing import RecordKind
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Header
from traceparity.tracefmt.source import open_file

Payload = dict[str, Any]
Change = Callable[[Payload], Any]


def pack(kind: int, raw: bytes, offset: int) -> bytes:
    return framing.Compressor().record(kind, raw, offset)


def raw_head(kind: int, codec: int, length: int, raw_length: int, stored: bytes, at: int) -> bytes:
    """A head that says what we want, with sound checksums."""
    head = struct.pack(
        "<4sBBHIIQ", framing.SYNC, kind, codec, 0, length, raw_length,
        xxhash.xxh3_64_intdigest(stored),
    )  # fmt: skip
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head, at))


def trace_of(records: list[tuple[int, bytes]], *, footer: bytes | None = None) -> bytes:
    """A file of records with sound checksums."""
    data = framing.prefix_bytes() + pack(RecordKind.HEADER, pack_header(Header()), 16)
    for kind, raw in records:
        data += pack(kind, raw, len(data))
    if footer is not None:
        data += pack(RecordKind.FOOTER, footer, len(data)) + framing.trailer_bytes(len(data))
    return data


def payloads(path: Path) -> Iterator[tuple[framing.RecordHead, Payload]]:
    with contextlib.closing(open_file(path)) as source:
        for head in framing.scan(source, 16):
            assert isinstance(head, framing.RecordHead)
            if head.kind in (RecordKind.CHUNK, RecordKind.FOOTER):
                yield head, msgpack.unpackb(framing.read_payload(source, head))


def rewritten(sound: list[tuple[framing.RecordHead, Payload]], kind: int, change: Change) -> bytes:
    """A finished trace in which the first payload of a kind was changed."""
    copies = [(head.kind, msgpack.unpackb(msgpack.packb(payload))) for head, payload in sound]
    target = next(payload for each, payload in copies if each == kind)
    if kind == RecordKind.CHUNK:
        change(target)
    data, places = trace_of([]), []
    for _, payload in copies[:-1]:
        record = pack(RecordKind.CHUNK, msgpack.packb(payload), len(data))
        places.append((len(data), len(record)))
        data += record
    footer = copies[-1][1]
    chunks_at(*places)(footer)
    if kind == RecordKind.FOOTER:
        change(footer)
    return finished(data, footer)


def finished(data: bytes, footer: Payload) -> bytes:
    """The records with a footer and a trailer."""
    record = pack(RecordKind.FOOTER, msgpack.packb(footer), len(data))
    return data + record + framing.trailer_bytes(len(data))


def chunks_at(*places: tuple[int, int]) -> Change:
    """A change of where the footer says that chunks lie."""

    def change(footer: Payload) -> None:
        footer["chunk_offset"] = np.array([at for at, _ in places], "<u8").tobytes()
        footer["chunk_length"] = np.array([size for _, size in places], "<u4").tobytes()

    return change


def use_all(path: Path) -> str:
    """Open a trace and read everything in it; "ok", or what was wrong."""
    try:
        with open_trace(path) as trace:
            for step in trace.steps:
                columns = trace.columns(step.number)
                for row in range(len(columns)):
                    trace.value(columns, row)
                    if columns.kind[row]:
                        trace.scalar(columns, row)
            return "ok" if trace.complete else trace.incomplete_reason
    except TraceFormatError as error:
        return str(error)


def put(*path: str, to: Any) -> Change:
    """A change that sets one field."""

    def change(payload: Payload) -> None:
        for name in path[:-1]:
            payload = payload[name]
        if to is DELETE:
            del payload[path[-1]]
        else:
            payload[path[-1]] = to(payload[path[-1]]) if callable(to) else to

    return change


DELETE = object()


def column(dtype: str, row: int, value: Any) -> Callable[[bytes], bytes]:
    """A change of one number in a column."""

    def change(data: bytes) -> bytes:
        numbers = np.frombuffer(data, dtype).copy()
        numbers[row] = value
        return numbers.tobytes()

    return change
