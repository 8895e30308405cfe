"""The reader: opens a trace, finished or not, and gives its steps as columns."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from traceparity.tracefmt import framing
from traceparity.tracefmt.codec import (
    Tables,
    join_columns,
    unpack_columns,
    unpack_header,
    unpack_map,
    unpack_plain,
)
from traceparity.tracefmt.errors import (
    TraceError,
    TraceFormatError,
    TraceNotFoundError,
    TruncatedError,
)
from traceparity.tracefmt.index import Footer, unpack_footer
from traceparity.tracefmt.records import (
    Columns,
    Flag,
    Header,
    NotObserved,
    SiteEntry,
    StepEntry,
)
from traceparity.tracefmt.recovery import recover

_RANK_FILE = re.compile(r"rank(\d+)\.trace")


class Trace:
    """One trace, opened for reading. Only the index is in memory; steps are read when asked for.

    Attributes:
        path: The file.
        header: What was known when recording began.
        complete: Whether the recording ended as it should.
        incomplete_reason: Why it did not.
        content_digest: 32 hexadecimal digits over all judged observations.
        strings: The interned strings, by id.
        shapes: The interned shapes, by id.
        sites: The interned sites, by id.
        steps: What the index knows of each step, in order.
        not_observed: What the recorder could not see.
    """

    def __init__(
        self, path: Path, stream: BinaryIO, header: Header, footer: Footer, tables: Tables
    ) -> None:
        self.path = path
        self.header = header
        self.complete = footer.complete
        self.incomplete_reason = footer.reason
        self.content_digest = footer.content_digest
        self.steps: tuple[StepEntry, ...] = footer.steps
        self.strings: list[str] = tables.strings
        self.shapes: list[tuple[int, ...]] = tables.shapes
        self.sites: list[SiteEntry] = tables.sites
        self.not_observed: list[NotObserved] = tables.not_observed
        self._stream = stream
        self._tables = tables
        self._by_number = {step.number: step for step in footer.steps}

    def __enter__(self) -> "Trace":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def columns(self, number: int) -> Columns:
        """The observations of a step.

        Raises:
            KeyError: There is no such step.
            TraceFormatError: The step is damaged.
        """
        chunks = self._by_number[number].chunks
        return join_columns([self._chunk(offset, length) for offset, length in chunks])

    def _chunk(self, offset: int, length: int) -> Columns:
        head = framing.read_head(self._stream, offset)
        if head is None or head.kind != framing.RecordKind.CHUNK or head.end - offset != length:
            raise TraceFormatError(f"the index points to byte {offset}, where no such chunk is")
        data = unpack_map(framing.read_payload(self._stream, head), "chunk")
        return unpack_columns(data, self._tables)

    def value(self, columns: Columns, row: int) -> bytes | None:
        """The kept bytes of a row of ``columns``; None where none were kept.

        Raises:
            TraceFormatError: The value is damaged.
        """
        offset, length = int(columns.value_offset[row]), int(columns.value_length[row])
        if offset < 0:
            return None
        if not columns.flags[row] & Flag.EXTERNAL_VALUE:
            return bytes(columns.values[offset : offset + length])
        return b"".join(self._value_records(offset, length))

    def _value_records(self, offset: int, length: int) -> Iterator[bytes]:
        while length > 0:
            head = framing.read_head(self._stream, offset)
            if head is None or head.kind != framing.RecordKind.VALUE or head.raw_length > length:
                raise TraceFormatError(f"no value record lies at byte {offset}")
            part = framing.read_payload(self._stream, head)
            if not part:
                raise TraceFormatError(f"the value record at byte {offset} is empty")
            yield part
            length -= len(part)
            offset = head.end

    def scalar(self, columns: Columns, row: int) -> Any:
        """The plain value of a scalar, marker or sample-ID row.

        Raises:
            TraceFormatError: The value is damaged.
        """
        value = self.value(columns, row)
        return None if value is None else unpack_plain(value)


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open one trace file; a file without a sound footer is opened as far as it is sound.

    Raises:
        TraceNotFoundError: There is no such file.
        TraceFormatError: It is no trace, or so damaged that nothing of it can be used.
        TraceError: It cannot be read.
    """
    path = Path(path)
    try:
        stream: BinaryIO = open(path, "rb")  # noqa: SIM115 - the trace keeps it open
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error
    try:
        header, footer, tables = _read(stream)
    except TraceFormatError as error:
        stream.close()
        # The message gets the path here: below this point nobody knows it.
        error.args = (f"{path}: {error}",)
        raise
    except OSError as error:
        stream.close()
        raise TraceError(f"{path}: {error.strerror or error}") from error
    return Trace(path, stream, header, footer, tables)


def _read(stream: BinaryIO) -> tuple[Header, Footer, Tables]:
    framing.check_prefix(stream.read(framing.PREFIX_SIZE))
    head = framing.read_head(stream, framing.PREFIX_SIZE)
    if head is None:
        raise TruncatedError(framing.PREFIX_SIZE)
    if head.kind != framing.RecordKind.HEADER:
        raise TraceFormatError("the first record is no header")
    header = unpack_header(framing.read_payload(stream, head))
    try:
        footer = _footer(stream)
    except TraceFormatError as error:
        # The chunks say the same as a lost index, so nothing but the index is lost.
        found = recover(stream, head.end)
        reason = f"damaged: {error}; the index was rebuilt from the steps"
        return header, replace(found.footer, reason=reason), found.tables
    if footer is not None:
        return header, *footer
    found = recover(stream, head.end)
    return header, found.footer, found.tables


def _footer(stream: BinaryIO) -> tuple[Footer, Tables] | None:
    offset = framing.footer_offset(stream)
    if offset is None:
        return None
    head = framing.read_head(stream, offset)
    if head is None or head.kind != framing.RecordKind.FOOTER:
        raise TraceFormatError(f"no index lies at byte {offset}")
    return unpack_footer(framing.read_payload(stream, head))


def open_run(path: str | os.PathLike[str]) -> dict[int, Trace]:
    """Open a run: one trace file, or a folder with a ``rank<N>.trace`` for each process.

    Returns:
        The traces by rank, in order of rank; a single file is rank 0, whatever its header says.

    Raises:
        TraceNotFoundError: There is no such file or folder, or the folder holds no trace.
        TraceFormatError: One of the files is unsound.
    """
    path = Path(path)
    if not path.is_dir():
        return {0: open_trace(path)}
    ranks = {
        int(match[1]): entry for entry in path.iterdir() if (match := _RANK_FILE.fullmatch(entry.name))
    }
    if not ranks:
        raise TraceNotFoundError(f"{path}: the folder holds no rank<N>.trace")
    return {rank: open_trace(ranks[rank]) for rank in sorted(ranks)}
