"""Payloads: rows, tables and headers <-> msgpack bytes, with every number checked on the way in."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgpack
import numpy as np

from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.records import (
    SKETCH_WIDTH,
    Columns,
    Flag,
    Header,
    Kind,
    NotObserved,
    Phase,
    Site,
    SiteEntry,
)
from traceparity.tracefmt.rows import ROW, Rows

MAX_ROWS = 1 << 22
"""Rows that a chunk may claim. The writer stays far below."""
MAX_DIMENSIONS = 64


@dataclass(slots=True)
class Tables:
    """What ids stand for: everything interned so far in one file."""

    strings: list[str]
    shapes: list[tuple[int, ...]]
    sites: list[SiteEntry]
    not_observed: list[NotObserved]

    @classmethod
    def empty(cls) -> "Tables":
        """Tables as they are at the beginning of a file: id 0 means "none" in each."""
        return cls([""], [()], [], [])


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """What a chunk says beside its rows."""

    step: int
    part: int
    tail: bool
    micro_batches: int
    parameters_digest: bytes


def pack_header(header: Header) -> bytes:
    """The payload of the header record."""
    return _pack(asdict(header))


def unpack_header(payload: bytes) -> Header:
    """The header from its record.

    Raises:
        TraceFormatError: It is no header.
    """
    data = unpack_map(payload, "header")
    try:
        return Header(
            program=_typed(data["program"], str),
            arguments=tuple(_typed(item, str) for item in data["arguments"]),
            process=_typed(data["process"], dict),
            rank=_typed(data["rank"], int),
            world_size=_typed(data["world_size"], int),
            versions=_typed(data["versions"], dict),
            environment=_typed(data["environment"], dict),
            capture=_typed(data["capture"], dict),
            session=_typed(data["session"], str),
            format_version=(int(data["format_version"][0]), int(data["format_version"][1])),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TraceFormatError(f"the header is damaged: {error!r}") from error


def pack_tables(
    tables: Tables, string_ids: Mapping[str, int], since: tuple[int, int, int, int]
) -> dict[str, Any]:
    """What was interned since the given table lengths, as plain data."""
    strings, shapes, sites, notes = since
    number = string_ids
    return {
        "strings": tables.strings[strings:],
        "shapes": [list(shape) for shape in tables.shapes[shapes:]],
        "sites": [
            [
                int(entry.site.phase),
                number[entry.site.component],
                number[entry.site.field],
                number[entry.location],
            ]
            for entry in tables.sites[sites:]
        ],
        "not_observed": [[note.component, note.reason] for note in tables.not_observed[notes:]],
    }


def extend_tables(tables: Tables, data: dict[str, Any]) -> None:
    """Append what a chunk or the footer brings.

    Raises:
        TraceFormatError: An entry has a wrong type or points outside the tables.
    """
    try:
        tables.strings += [_typed(text, str) for text in _typed(data["strings"], list)]
        tables.shapes += [_shape(shape) for shape in _typed(data["shapes"], list)]
        strings = tables.strings
        for phase, component, field, location in _typed(data["sites"], list):
            if min(component, field, location) < 0:
                raise ValueError("a negative id")
            site = Site(Phase(phase), strings[component], strings[field])
            tables.sites.append(SiteEntry(site, strings[location]))
        for component, reason in _typed(data["not_observed"], list):
            note = NotObserved(_typed(component, str), _typed(reason, str))
            tables.not_observed.append(note)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TraceFormatError(f"an interned table is damaged: {error!r}") from error


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = tuple(_typed(size, int) for size in _typed(shape, list))
    if len(sizes) > MAX_DIMENSIONS or any(size < 0 for size in sizes):
        raise ValueError("an impossible shape")
    return sizes


def pack_chunk(info: ChunkInfo, rows: Rows, tables: dict[str, Any]) -> bytes:
    """The payload of a chunk record: columns, new table entries, and the step's numbers."""
    table = rows.table()
    return _pack(
        {
            "step": info.step,
            "part": info.part,
            "tail": info.tail,
            "micro_batches": info.micro_batches,
            "parameters_digest": info.parameters_digest,
            "rows": len(table),
            "columns": {name: table[name].tobytes() for name in ROW.names or ()},
            "sketches": bytes(rows.sketches),
            "values": bytes(rows.values),
            **tables,
        }
    )


def unpack_chunk_info(data: dict[str, Any]) -> ChunkInfo:
    """The step's numbers from a chunk.

    Raises:
        TraceFormatError: One is missing or has a wrong type.
    """
    try:
        return ChunkInfo(
            step=_natural(data["step"]),
            part=_natural(data["part"]),
            tail=_typed(data["tail"], bool),
            micro_batches=_natural(data["micro_batches"]),
            parameters_digest=_typed(data["parameters_digest"], bytes),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TraceFormatError(f"a chunk is damaged: {error!r}") from error


def unpack_columns(data: dict[str, Any], tables: Tables) -> Columns:
    """The columns of a chunk, as views of its bytes.

    Raises:
        TraceFormatError: A column has a wrong length, or an id points outside the tables.
    """
    try:
        count = _natural(data["rows"])
        if count > MAX_ROWS:
            raise ValueError(f"{count} rows (limit {MAX_ROWS})")
        columns = _typed(data["columns"], dict)
        views = {name: _column(columns[name], name, count) for name in ROW.names or ()}
        sketches = np.frombuffer(_typed(data["sketches"], bytes), "<f4")
        values = _typed(data["values"], bytes)
        result = Columns(**views, sketches=sketches.reshape(-1, SKETCH_WIDTH), values=values)
    except (KeyError, TypeError, ValueError) as error:
        raise TraceFormatError(f"a chunk is damaged: {error!r}") from error
    _check_references(result, tables)
    return result


def _column(data: Any, name: str, count: int) -> np.ndarray[Any, Any]:
    dtype = ROW.fields[name][0]  # type: ignore[index]  # every name comes from ROW
    base, shape = dtype.subdtype or (dtype, ())
    if len(_typed(data, bytes)) != count * dtype.itemsize:
        raise ValueError(f"column {name!r} has a wrong length")
    return np.frombuffer(data, base).reshape(count, *shape)


def _check_references(columns: Columns, tables: Tables) -> None:
    if not len(columns):
        return
    inside = (columns.flags & Flag.EXTERNAL_VALUE == 0) & (columns.value_offset >= 0)
    ends = columns.value_offset[inside].astype(np.uint64) + columns.value_length[inside]
    sound = (
        columns.site.max() < len(tables.sites)
        and columns.shape.max() < len(tables.shapes)
        and columns.dtype.max() < len(tables.strings)
        and columns.device.max() < len(tables.strings)
        and columns.kind.max() <= max(Kind)
        and columns.sketch_row.max() < len(columns.sketches)
        and columns.value_length.max() <= 1 << 50
        and (not len(ends) or int(ends.max()) <= len(columns.values))
    )
    if not sound:
        raise TraceFormatError("a chunk points outside its tables")


def unpack_map(payload: bytes, what: str) -> dict[str, Any]:
    """The map that every payload is.

    Raises:
        TraceFormatError: The payload is no msgpack map, or is nested too deeply.
    """
    try:
        data = msgpack.unpackb(payload, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise TraceFormatError(f"the {what} is no sound msgpack: {error}") from error
    if not isinstance(data, dict):
        raise TraceFormatError(f"the {what} is no map")
    return data


def unpack_plain(encoded: bytes) -> Any:
    """A plain value (scalar, marker, sample IDs) from its canonical encoding.

    Raises:
        TraceFormatError: The bytes are no such value.
    """
    try:
        return msgpack.unpackb(encoded, raw=False, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise TraceFormatError(f"a kept value is damaged: {error}") from error


def join_columns(parts: Sequence[Columns]) -> Columns:
    """The parts of a step as one table; a single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    names = [name for name in ROW.names or () if name not in ("sketch_row", "value_offset")]
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in names
    }
    sketch_rows, offsets, sketches, values = [], [], 0, 0
    for part in parts:
        sketch_rows.append(np.where(part.sketch_row >= 0, part.sketch_row + sketches, -1))
        inside = (part.value_offset >= 0) & (part.flags & Flag.EXTERNAL_VALUE == 0)
        offsets.append(part.value_offset + np.where(inside, values, 0))
        sketches += len(part.sketches)
        values += len(part.values)
    return Columns(
        **joined,
        sketch_row=np.concatenate(sketch_rows).astype(np.int32),
        value_offset=np.concatenate(offsets),
        sketches=np.concatenate([part.sketches for part in parts]),
        values=b"".join(part.values for part in parts),
    )


def _pack(data: dict[str, Any]) -> bytes:
    packed = msgpack.packb(data, use_bin_type=True)
    assert packed is not None  # noqa: S101 - packb returns None only when it is given a buffer
    return bytes(packed)


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _natural(value: Any) -> int:
    if _typed(value, int) < 0:
        raise ValueError("a negative number")
    return int(value)
