"""Headers and chunks <-> payloads, with every number checked on the way in."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceparity.tracefmt import limits
from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.frame import Frames, Sound
from traceparity.tracefmt.payload import Fields, pack_map, unpack_map
from traceparity.tracefmt.plain import decode_plain, encode_plain
from traceparity.tracefmt.records import (
    SKETCH_WIDTH,
    Columns,
    Flag,
    Header,
    Kind,
    ProcessGroup,
)
from traceparity.tracefmt.rows import ROW, Part
from traceparity.tracefmt.tables import Tables

COLUMNS = tuple(ROW.names or ())
"""The columns of a chunk, in the order of `docs/format.md`."""
SHARD_COLUMNS = ("whole", "offset", "layout")
"""Columns of version 1.1; a chunk without shards has none of them."""
_TYPES = tuple((name, ROW[name]) for name in COLUMNS)
_VALUES = ("digest", "stats", "nonfinite")
_POINTERS = ("sketch_row", "value_offset", "value_length")
_VARYING = _VALUES + _POINTERS
"""Columns that need not be the same in steps that see the same sites."""
_VALUE_TYPES = tuple((name, ROW[name]) for name in _VALUES)
_POINTER_TYPES = tuple((name, ROW[name]) for name in _POINTERS)
_FRAMES = Frames("columns", _VARYING)
_SKETCHES = np.dtype(("<f4", SKETCH_WIDTH))
_LAST_KIND = max(Kind)
_EXTERNAL = np.uint16(Flag.EXTERNAL_VALUE)


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """What a chunk says beside its rows.

    Attributes:
        step: Number of the step.
        part: Number of this chunk among those of the step, from 0.
        previous_step: Number of the step before; 0 for the first.
        previous_parts: How many chunks that step has; 0 for the first.
        last: Whether it is the step's last chunk.
        tail: Whether the step is the rest after the last update.
        micro_batches: How many forward/backward passes the step had until here.
        parameters_digest: 16 bytes over the parameters; zeros where unknown.
    """

    step: int
    part: int
    previous_step: int
    previous_parts: int
    last: bool
    tail: bool
    micro_batches: int
    parameters_digest: bytes


def pack_header(header: Header) -> bytes:
    """The payload of the header record.

    Raises:
        ValueError: It is longer than a header may be.
        TypeError: It holds something that is no plain data.
    """
    fields = asdict(header)
    # The prefix says it, and must be believed before anything else is.
    del fields["format_version"]
    fields["groups"] = [asdict(group) for group in header.groups]
    payload = encode_plain(fields)
    if len(payload) > limits.MAX_HEADER:
        raise ValueError(f"a header of {len(payload)} bytes (limit {limits.MAX_HEADER})")
    return payload


def unpack_header(payload: bytes, version: tuple[int, int]) -> Header:
    """The header from its record and the version that the prefix states.

    Raises:
        TraceFormatError: It is no header.
    """
    data = decode_plain(payload, limit=limits.MAX_HEADER)
    try:
        return Header(
            program=_typed(data["program"], str),
            arguments=tuple(_typed(item, str) for item in _typed(data["arguments"], list)),
            process=_typed(data["process"], dict),
            rank=_typed(data["rank"], int),
            world_size=_typed(data["world_size"], int),
            versions=_typed(data["versions"], dict),
            environment=_typed(data["environment"], dict),
            capture=_typed(data["capture"], dict),
            session=_typed(data["session"], str),
            groups=tuple(map(_group, _typed(data.get("groups", []), list))),
            format_version=version,
        )
    except (KeyError, TypeError) as error:
        raise TraceFormatError(f"the header is damaged: {error!r}") from error


def _group(data: Any) -> ProcessGroup:
    fields = _typed(data, dict)
    return ProcessGroup(
        name=_typed(fields["name"], str),
        ranks=tuple(_typed(rank, int) for rank in _typed(fields["ranks"], list)),
        backend=_typed(fields["backend"], str),
    )


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


def pack_chunk(info: ChunkInfo, part: Part, tables: Mapping[str, Any]) -> bytes:
    """The payload of a chunk record: columns, new table entries, and the step's numbers."""
    table = part.table
    return pack_map(
        {
            "step": info.step,
            "part": info.part,
            "previous_step": info.previous_step,
            "previous_parts": info.previous_parts,
            "last": info.last,
            "tail": info.tail,
            "micro_batches": info.micro_batches,
            "parameters_digest": info.parameters_digest,
            "tables": tables,
            "rows": len(table),
            "columns": {name: table[name].tobytes() for name in _used_columns(table)},
            "sketches": part.sketches,
            "values": part.values,
        }
    )


def _used_columns(table: npt.NDArray[np.void]) -> list[str]:
    lacking = SHARD_COLUMNS if not table["layout"].any() else ()
    return [name for name in COLUMNS if name not in lacking]


def unpack_chunk(payload: bytes) -> tuple[ChunkInfo, Fields]:
    """A chunk's numbers, and the fields that hold its tables and columns.

    Raises:
        TraceFormatError: One is missing or has a wrong type.
    """
    fields = unpack_map(payload, "chunk", _FRAMES)
    info = ChunkInfo(
        step=fields.natural("step"),
        part=fields.natural("part"),
        previous_step=fields.natural("previous_step"),
        previous_parts=fields.natural("previous_parts"),
        last=fields.boolean("last"),
        tail=fields.boolean("tail"),
        micro_batches=fields.natural("micro_batches"),
        parameters_digest=fields.data("parameters_digest"),
    )
    if len(info.parameters_digest) != 16:
        raise fields.error("'parameters_digest' has a wrong length")
    return info, fields


def unpack_columns(fields: Fields, tables: Tables) -> Columns:
    """The columns of a chunk, as views of its bytes.

    Raises:
        TraceFormatError: A column has a wrong length, or an id points outside the tables.
    """
    count, columns = fields.natural("rows"), fields.fields("columns")
    if count > limits.MAX_ROWS:
        raise fields.error(f"{count} rows (limit {limits.MAX_ROWS})")
    frame = fields.frame
    sound = frame.sound if frame is not None else None
    if sound is not None and len(sound.arrays["site"]) == count:
        views = sound.arrays | {
            name: columns.array(name, dtype, count) for name, dtype in _VALUE_TYPES
        }
        pointers = columns.datas(_POINTERS)
        is_known = pointers == sound.pointers
        if not is_known:
            views |= {name: columns.array(name, dtype, count) for name, dtype in _POINTER_TYPES}
    else:
        views = {name: _column(columns, name, dtype, count) for name, dtype in _TYPES}
        sound, is_known = None, False
    sketches = fields.array("sketches", _SKETCHES)
    result = Columns(**views, sketches=sketches, values=fields.data("values"))
    if count:
        _check(result, tables, sound, is_known=is_known)
        if frame is not None and not is_known:
            frame.sound = _sound(result, columns.datas(_POINTERS))
    return result


def _column(columns: Fields, name: str, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    if name in SHARD_COLUMNS and not columns.has(name):
        return np.zeros(count, dtype)
    return columns.array(name, dtype, count)


def _check(columns: Columns, tables: Tables, sound: Sound | None, *, is_known: bool) -> None:
    """See that all ids and places lie where there is something.

    Args:
        columns: The columns.
        tables: What ids point into.
        sound: What columns with the same sites were found to be.
        is_known: Whether they had the same pointers too.

    Raises:
        TraceFormatError: One does not.
    """
    most = _most(columns) if sound is None else sound.most
    is_sound = (
        most[0] < len(tables.sites)
        and most[1] < len(tables.shapes)
        and most[2] < len(tables.strings)
    )
    room = len(columns.sketches), len(columns.values)
    # Where the same bytes were found sound with as much behind them, they are so once more.
    if not (is_known and sound is not None and sound.room == room):
        is_sound = is_sound and _points_inside(columns)
    if not is_sound:
        raise TraceFormatError("the chunk is damaged: it points outside its tables")


def _sound(columns: Columns, pointers: tuple[bytes, ...]) -> Sound:
    """What the next chunk may take over from columns that were found sound."""
    kept = [name for name in COLUMNS if name not in _VARYING]
    arrays = {name: getattr(columns, name) for name in kept}
    for (name, dtype), data in zip(_POINTER_TYPES, pointers, strict=True):
        # A copy: the column itself would keep all of its chunk in memory.
        arrays[name] = np.frombuffer(data, dtype)
    room = len(columns.sketches), len(columns.values)
    return Sound(arrays, _most(columns), pointers, room)


def _most(columns: Columns) -> tuple[int, int, int]:
    """The largest id of a site, of a shape and of a string."""
    shapes, strings = (
        max(int(column.max()) for column in group)
        for group in (
            (columns.shape, columns.whole, columns.offset),
            (columns.layout, columns.dtype, columns.device),
        )
    )
    if columns.kind.max() > _LAST_KIND:
        raise TraceFormatError("the chunk is damaged: it has a row of an unknown kind")
    return int(columns.site.max()), shapes, strings


def _points_inside(columns: Columns) -> bool:
    """Whether the varying columns point at sketches and values that there are."""
    return bool(
        columns.sketch_row.max() < len(columns.sketches)
        and columns.sketch_row.min() >= -1
        and columns.value_offset.min() >= -1
        and _values_inside(columns)
    )


def _values_inside(columns: Columns) -> bool:
    """Whether kept values lie in the chunk, but for those that lie in records of their own."""
    offsets, flags = columns.value_offset, columns.flags
    kept = np.flatnonzero((offsets >= 0) | ((flags & _EXTERNAL) != 0))
    if not len(kept):
        return True
    external = (flags[kept] & _EXTERNAL) != 0
    inside, room = kept[~external], len(columns.values)
    starts, lengths = offsets[inside].astype(np.uint64), columns.value_length[inside]
    # Each is checked against the room alone too, as their sum may overflow.
    fits = (starts <= room) & (lengths <= room) & (starts + lengths <= room)
    return bool(fits.all()) and int(offsets[kept[external]].min(initial=0)) >= 0


def join_columns(parts: Sequence[Columns]) -> Columns:
    """The parts of a step as one table; a single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    names = [name for name in COLUMNS if name not in ("sketch_row", "value_offset")]
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in names
    }
    sketch_rows, offsets, sketches, values = [], [], 0, 0
    for part in parts:
        sketch_rows.append(np.where(part.sketch_row >= 0, part.sketch_row + sketches, -1))
        inside = (part.value_offset >= 0) & (part.flags & np.uint16(Flag.EXTERNAL_VALUE) == 0)
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
