"""Records: how blocks of bytes lie in a file, each with its length and checksums.

A file is a prefix, then records, then (when it was finished) a trailer that says where the footer
record begins. A record's head has a checksum of its own, so that its lengths are believed only if
they are sound; the checksum is seeded with the record's place, so that bytes in the wrong place,
such as a trace kept as a tensor, are no record. `docs/format.md` is the specification.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import xxhash
import zstandard

from traceparity.tracefmt import limits
from traceparity.tracefmt.errors import (
    ChecksumError,
    ForeignFileError,
    TraceFormatError,
    TruncatedError,
    VersionError,
)
from traceparity.tracefmt.source import Source

MAGIC = b"\x89TPT\r\n\x1a\n"
"""Begins every trace. Like PNG's: not text, and broken by any line-end conversion."""
END_MAGIC = b"TPTend\r\n"
VERSION = (1, 1)
"""History: 1.0 first release."""

SYNC = b"\xf1TPr"
"""Begins every record, so that a reader finds the next one after damage."""
_PREFIX = struct.Struct("<8sHHI")
_HEAD = struct.Struct("<4sBBHIIQ")
_CHECK = struct.Struct("<Q")
_TRAILER = struct.Struct("<Q8s")
PREFIX_SIZE = _PREFIX.size
HEAD_SIZE = _HEAD.size + _CHECK.size
TRAILER_SIZE = _TRAILER.size
_STORED, _ZSTD = 0, 1
_BLOCK = 1 << 16


class RecordKind(IntEnum):
    """What a record holds. The numbers are on disk: never renumber; unknown ones are skipped."""

    HEADER = 1
    CHUNK = 2
    VALUE = 3
    FOOTER = 4


_MOST = {
    RecordKind.HEADER: limits.MAX_HEADER,
    RecordKind.CHUNK: limits.MAX_CHUNK,
    RecordKind.VALUE: limits.MAX_VALUE_RECORD,
    RecordKind.FOOTER: limits.MAX_FOOTER,
}


@dataclass(frozen=True, slots=True)
class RecordHead:
    """The fixed part of a record.

    Attributes:
        offset: Where the record begins in the file.
        kind: A `RecordKind`, or an unknown number from a newer minor version.
        codec: 0 stored as it is, 1 one zstd frame.
        length: Bytes of the payload in the file.
        raw_length: Bytes of the payload when unpacked.
        checksum: xxh3-64 of the payload in the file.
    """

    offset: int
    kind: int
    codec: int
    length: int
    raw_length: int
    checksum: int

    @property
    def end(self) -> int:
        """Where the next record begins."""
        return self.offset + HEAD_SIZE + self.length


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes between or after records that are no record.

    Attributes:
        offset: Where they begin.
        end: Where the next record begins, or the file ends.
        reason: What is wrong with them.
        cut: Whether they are the beginning of a record that the file's end cuts off.
    """

    offset: int
    end: int
    reason: str
    cut: bool = False


def prefix_bytes(version: tuple[int, int] = VERSION) -> bytes:
    """The first 16 bytes of a file."""
    body = _PREFIX.pack(MAGIC, *version, 0)[:-4]
    return body + struct.pack("<I", xxhash.xxh32_intdigest(body))


def check_prefix(prefix: bytes) -> tuple[int, int]:
    """Return the format version that ``prefix`` states.

    Raises:
        ForeignFileError: It is not the beginning of a trace.
        TruncatedError: The file is shorter than a prefix.
        ChecksumError: The version is damaged.
        VersionError: Another major version wrote the file.
    """
    if not prefix:
        raise ForeignFileError("the file is empty")
    if prefix[: len(MAGIC)] != MAGIC[: len(prefix)]:
        raise ForeignFileError("not a trace: it does not begin as one does")
    if len(prefix) < PREFIX_SIZE:
        raise TruncatedError(0)
    _, major, minor, check = _PREFIX.unpack(prefix)
    if xxhash.xxh32_intdigest(prefix[:-4]) != check:
        raise ChecksumError(0)
    if major != VERSION[0]:
        raise VersionError(
            f"the trace has format version {major}.{minor}, this traceparity reads {VERSION[0]}.x;"
            " upgrade traceparity"
        )
    return major, minor


class Compressor:
    """Packs payloads into records; holds the zstd context between them."""

    def __init__(self, level: int = -1) -> None:
        self._zstd = zstandard.ZstdCompressor(level=level, write_content_size=True)

    def record(self, kind: int, raw: bytes | memoryview, offset: int) -> bytes:
        """The record that holds ``raw``, ready to be written at ``offset``."""
        packed = self._zstd.compress(raw)
        codec, stored = (_ZSTD, packed) if len(packed) < len(raw) else (_STORED, bytes(raw))
        checksum = xxhash.xxh3_64_intdigest(stored)
        head = _HEAD.pack(SYNC, kind, codec, 0, len(stored), len(raw), checksum)
        return b"".join((head, _CHECK.pack(xxhash.xxh3_64_intdigest(head, offset)), stored))


def read_head(source: Source, offset: int) -> RecordHead | None:
    """The head of the record at ``offset``; None at or after the end of the file.

    Raises:
        TruncatedError: The file ends inside the record.
        ChecksumError: What lies there is no record, or its head is damaged.
        TraceFormatError: The record claims more than the limits.
    """
    if offset >= source.size:
        return None
    return _head_of(source.read_at(offset, HEAD_SIZE), offset, source.size)


def _head_of(data: bytes, offset: int, size: int) -> RecordHead:
    """The head that ``data`` begins with, read at ``offset`` of a file of ``size`` bytes."""
    if data[: len(SYNC)] != SYNC[: len(data)]:
        raise ChecksumError(offset)
    if len(data) < HEAD_SIZE:
        raise TruncatedError(offset)
    head = _parsed(data[:HEAD_SIZE], offset)
    if head is None:
        raise ChecksumError(offset)
    # A wrong length must not become an allocation, so it is checked before anything is read.
    most = _MOST.get(head.kind, limits.MAX_FOOTER)  # type: ignore[call-overload]
    if not head.length <= head.raw_length <= most:
        raise TraceFormatError(
            f"the record at byte {offset} claims {head.raw_length} bytes, packed in {head.length}"
            f" (limit {most})"
        )
    if head.end > size:
        raise TruncatedError(offset)
    return head


def _parsed(data: bytes, offset: int) -> RecordHead | None:
    if _CHECK.unpack_from(data, _HEAD.size)[0] != xxhash.xxh3_64_intdigest(
        data[: _HEAD.size], offset
    ):
        return None
    _, kind, codec, _, length, raw_length, checksum = _HEAD.unpack_from(data)
    return RecordHead(offset, kind, codec, length, raw_length, checksum)


def read_chunk(source: Source, offset: int, length: int) -> tuple[RecordHead, memoryview]:
    """The head of the chunk that the index places somewhere, and its payload as `read_stored`.

    Raises:
        TraceFormatError: No sound chunk of that length lies there.
    """
    if length > HEAD_SIZE + limits.MAX_CHUNK:
        raise TraceFormatError(f"no such chunk lies at byte {offset}")
    # One access for both, since the length is known: where the file is far away each one costs.
    data = source.read_at(offset, length)
    head = _head_of(data, offset, source.size)
    if head.kind != RecordKind.CHUNK or head.end - offset != length:
        raise TraceFormatError(f"no such chunk lies at byte {offset}")
    stored = memoryview(data)[HEAD_SIZE:]
    _check(stored, head)
    return head, stored


def read_stored(source: Source, head: RecordHead) -> memoryview:
    """The payload of a record as it lies in the file, its checksum verified.

    Raises:
        TruncatedError: The file ends inside it.
        ChecksumError: It was changed.
    """
    stored = memoryview(source.read_at(head.offset + HEAD_SIZE, head.length))
    _check(stored, head)
    return stored


def _check(stored: memoryview, head: RecordHead) -> None:
    if len(stored) < head.length:
        raise TruncatedError(head.offset)
    if xxhash.xxh3_64_intdigest(stored) != head.checksum:
        raise ChecksumError(head.offset)


def read_payload(source: Source, head: RecordHead) -> bytes:
    """The unpacked payload of a record.

    Raises:
        TruncatedError: The file ends inside it.
        ChecksumError: It was changed.
        TraceFormatError: It does not unpack to the length that it states.
    """
    return unpacked(read_stored(source, head), head)


def unpacked(stored: memoryview, head: RecordHead) -> bytes:
    """The payload of a record from what lies in the file.

    Raises:
        TraceFormatError: It does not unpack to the length that the record states.
    """
    if head.codec == _STORED and head.length == head.raw_length:
        return bytes(stored)
    if head.codec != _ZSTD:
        raise TraceFormatError(f"the record at byte {head.offset} has an unknown codec")
    try:
        # The frame's own size is what gets allocated: it must be the one that was checked.
        if zstandard.frame_content_size(stored) == head.raw_length:
            payload = zstandard.ZstdDecompressor().decompress(
                stored, max_output_size=head.raw_length, allow_extra_data=False
            )
            if len(payload) == head.raw_length:
                return payload
    except zstandard.ZstdError as error:
        raise TraceFormatError(f"the record at byte {head.offset} does not unpack") from error
    raise TraceFormatError(f"the record at byte {head.offset} misstates its length")


def read_beginning(source: Source) -> tuple[tuple[int, int], RecordHead]:
    """The format version, and the head of the header record.

    Raises:
        TraceFormatError: The file does not begin as a trace does.
    """
    version = check_prefix(source.read_at(0, PREFIX_SIZE))
    head = read_head(source, PREFIX_SIZE)
    if head is None:
        raise TruncatedError(PREFIX_SIZE)
    if head.kind != RecordKind.HEADER:
        raise TraceFormatError("the first record is no header")
    return version, head


def scan(source: Source, offset: int) -> Iterator[RecordHead | Gap]:
    """Yield the head of each record from ``offset`` on, and the gaps between them.

    Payloads are neither read nor checked. A record of unknown kind is yielded as any other.
    """
    end, after_footer = _end_of_records(source), False
    while offset < end:
        if after_footer and end - offset < TRAILER_SIZE:
            yield Gap(offset, end, "the file ends inside its trailer", cut=True)
            return
        try:
            head = read_head(source, offset)
        except TruncatedError as error:
            yield Gap(offset, end, str(error), cut=True)
            return
        except TraceFormatError as error:
            after = _next_record(source, offset + 1, end)
            yield Gap(offset, after, str(error))
            offset = after
            continue
        if head is None or head.end > end:
            yield Gap(offset, end, str(TruncatedError(offset)), cut=True)
            return
        yield head
        offset, after_footer = head.end, head.kind == RecordKind.FOOTER


def _end_of_records(source: Source) -> int:
    size = source.size
    last = source.read_at(max(size - TRAILER_SIZE, 0), TRAILER_SIZE)
    return size - TRAILER_SIZE if last.endswith(END_MAGIC) else size


def _next_record(source: Source, offset: int, end: int) -> int:
    """Where the next record with a sound head begins; ``end`` where there is none."""
    for _ in range(limits.MAX_FALSE_STARTS):
        at = _find_sync(source, offset, end)
        if at is None:
            return end
        data = source.read_at(at, HEAD_SIZE)
        if len(data) == HEAD_SIZE and _parsed(data, at) is not None:
            return at
        offset = at + 1
    return end


def _find_sync(source: Source, offset: int, end: int) -> int | None:
    while offset < end:
        block = source.read_at(offset, min(_BLOCK, end - offset))
        if not block:
            return None
        at = block.find(SYNC)
        if at >= 0:
            return offset + at
        # The mark may lie across the border of two blocks.
        offset += max(len(block) - len(SYNC) + 1, 1)
    return None


def trailer_bytes(footer_offset: int) -> bytes:
    """The last 16 bytes of a finished file."""
    return _TRAILER.pack(footer_offset, END_MAGIC)


def footer_offset(source: Source) -> int | None:
    """Where the footer begins, by the trailer; None for a file that has none."""
    if source.size < PREFIX_SIZE + TRAILER_SIZE:
        return None
    trailer = source.read_at(source.size - TRAILER_SIZE, TRAILER_SIZE)
    if len(trailer) < TRAILER_SIZE:
        return None
    offset, magic = _TRAILER.unpack(trailer)
    return int(offset) if magic == END_MAGIC else None
