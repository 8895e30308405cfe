"""Records: how blocks of bytes lie in a file, each with its length and checksum.

A file is a prefix, then records, then (when it was finished) a trailer that says where the footer
record begins. `docs/format.md` is the specification.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import BinaryIO

import xxhash
import zstandard

from traceparity.tracefmt.errors import (
    ChecksumError,
    ForeignFileError,
    TraceFormatError,
    TruncatedError,
    VersionError,
)

MAGIC = b"\x89TPT\r\n\x1a\n"
"""Begins every trace. Like PNG's: not text, and broken by any line-end conversion."""
END_MAGIC = b"TPTend\r\n"
VERSION = (1, 0)
"""History: 1.0 first release."""

SYNC = b"\xf1TPr"
"""Begins every record, so that a reader finds the next one after damage."""
_PREFIX = struct.Struct("<8sHHI")
_HEAD = struct.Struct("<4sBB2xQQQ")
_TRAILER = struct.Struct("<Q8s")
PREFIX_SIZE = _PREFIX.size
HEAD_SIZE = _HEAD.size
TRAILER_SIZE = _TRAILER.size

MAX_STORED = 1 << 30
"""Bytes that a record may take in the file. Nothing longer is written or believed."""
MAX_RAW = 1 << 30
"""Bytes that a record may have when unpacked."""
_STORED, _ZSTD = 0, 1


class RecordKind(IntEnum):
    """What a record holds. The numbers are on disk: never renumber; unknown ones are skipped."""

    HEADER = 1
    CHUNK = 2
    VALUE = 3
    FOOTER = 4


@dataclass(frozen=True, slots=True)
class RecordHead:
    """The fixed part of a record.

    Attributes:
        offset: Where the record begins in the file.
        kind: A `RecordKind`, or an unknown number from a newer minor version.
        codec: 0 stored as it is, 1 one zstd frame.
        length: Bytes of the payload in the file.
        raw_length: Bytes of the payload when unpacked.
        checksum: xxh3-64 over the head (checksum left out) and the stored payload.
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

    def __init__(self, level: int = 1) -> None:
        self._zstd = zstandard.ZstdCompressor(level=level, write_content_size=True)

    def record(self, kind: int, raw: bytes) -> bytes:
        """One record, ready to be appended to a file."""
        packed = self._zstd.compress(raw)
        codec, stored = (_ZSTD, packed) if len(packed) < len(raw) else (_STORED, raw)
        head = _HEAD.pack(SYNC, kind, codec, len(stored), len(raw), 0)
        check = xxhash.xxh3_64(head[:-8])
        check.update(stored)
        return head[:-8] + check.intdigest().to_bytes(8, "little") + stored


def read_head(stream: BinaryIO, offset: int) -> RecordHead | None:
    """The head of the record at ``offset``; None at the end of the file.

    Raises:
        TruncatedError: The file ends inside the head.
        ChecksumError: What lies there is no record.
        TraceFormatError: The record claims more than the limits.
    """
    stream.seek(offset)
    head = stream.read(HEAD_SIZE)
    if not head:
        return None
    if head[: len(SYNC)] != SYNC[: len(head)]:
        raise ChecksumError(offset)
    if len(head) < HEAD_SIZE:
        raise TruncatedError(offset)
    _, kind, codec, length, raw_length, checksum = _HEAD.unpack(head)
    # A corrupt length must not become an allocation, so it is checked before anything is read.
    if length > MAX_STORED or raw_length > MAX_RAW:
        raise TraceFormatError(
            f"the record at byte {offset} claims {max(length, raw_length)} bytes"
            f" (limit {MAX_RAW})"
        )
    return RecordHead(offset, kind, codec, length, raw_length, checksum)


def read_payload(stream: BinaryIO, head: RecordHead) -> bytes:
    """The unpacked payload of a record.

    Raises:
        TruncatedError: The file ends inside it.
        ChecksumError: It was changed.
        TraceFormatError: It does not unpack to the length that it states.
    """
    stream.seek(head.offset + HEAD_SIZE)
    stored = stream.read(head.length)
    if len(stored) < head.length:
        raise TruncatedError(head.offset)
    packed = _HEAD.pack(SYNC, head.kind, head.codec, head.length, head.raw_length, 0)
    check = xxhash.xxh3_64(packed[:-8])
    check.update(stored)
    if check.intdigest() != head.checksum:
        raise ChecksumError(head.offset)
    if head.codec == _STORED and head.length == head.raw_length:
        return stored
    if head.codec != _ZSTD:
        raise TraceFormatError(f"the record at byte {head.offset} has an unknown codec")
    # The frame's own size is checked against the head's: only then may it be allocated.
    if zstandard.frame_content_size(stored) != head.raw_length:
        raise TraceFormatError(f"the record at byte {head.offset} misstates its length")
    try:
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=head.raw_length)
    except zstandard.ZstdError as error:
        raise TraceFormatError(f"the record at byte {head.offset} does not unpack") from error


def scan(stream: BinaryIO, offset: int = PREFIX_SIZE) -> Iterator[RecordHead]:
    """Yield the head of each record from ``offset`` on, without reading payloads.

    Raises:
        TruncatedError: The file ends inside a record.
        ChecksumError: Something that is no record follows a record.
    """
    size = stream.seek(0, 2)
    while offset < size and not _is_trailer(stream, offset, size):
        head = read_head(stream, offset)
        if head is None:
            return
        if head.end > size:
            raise TruncatedError(offset)
        yield head
        offset = head.end


def _is_trailer(stream: BinaryIO, offset: int, size: int) -> bool:
    if offset + TRAILER_SIZE != size:
        return False
    stream.seek(offset)
    return stream.read(TRAILER_SIZE).endswith(END_MAGIC)


def find_sync(stream: BinaryIO, offset: int) -> int | None:
    """Where the next record may begin at or after ``offset``; None where there is none."""
    block, overlap = 1 << 20, len(SYNC) - 1
    while True:
        stream.seek(offset)
        data = stream.read(block)
        found = data.find(SYNC)
        if found >= 0:
            return offset + found
        if len(data) < block:
            return None
        offset += block - overlap


def trailer_bytes(footer_offset: int) -> bytes:
    """The last 16 bytes of a finished file."""
    return _TRAILER.pack(footer_offset, END_MAGIC)


def footer_offset(stream: BinaryIO) -> int | None:
    """Where the footer begins; None for a file that was not finished."""
    size = stream.seek(0, 2)
    if size < PREFIX_SIZE + TRAILER_SIZE:
        return None
    stream.seek(size - TRAILER_SIZE)
    offset, magic = _TRAILER.unpack(stream.read(TRAILER_SIZE))
    if magic != END_MAGIC or not PREFIX_SIZE <= offset < size - TRAILER_SIZE:
        return None
    return int(offset)
