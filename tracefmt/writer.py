"""The writer: appends a trace to a file, so that any prefix of the file can be read."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from traceparity.tracefmt import limits
from traceparity.tracefmt.codec import ChunkInfo, pack_chunk, pack_header
from traceparity.tracefmt.errors import TraceError, TraceExistsError
from traceparity.tracefmt.framing import Compressor, RecordKind, prefix_bytes, trailer_bytes
from traceparity.tracefmt.index import Footer, IndexBuilder, pack_footer
from traceparity.tracefmt.records import Header, NotObserved, Phase
from traceparity.tracefmt.rows import Part, Rows
from traceparity.tracefmt.tables import AT_FIRST, Interner

_KNOWN_VALUES = 1 << 16
_NO_PARAMETERS = bytes(16)


class Writer:
    """Writes one trace.

    The file has its final name from the first byte: a killed process leaves a readable trace, and
    there is nothing to rename. It is created by the first part of a step, so a process that has
    nothing to say writes nothing. The caller gives observations as `Rows`, a step in one part or
    several.

    Whatever a method raises, the file ends after the last sound record and the writer can go on;
    what failed was not written, in whole. A forked child cannot write to its parent's trace.

    Attributes:
        path: The file, once it exists.
    """

    def __init__(
        self, path: str | os.PathLike[str] | Callable[[], Path], header: Callable[[], Header]
    ) -> None:
        """Prepare a trace; no file is touched yet.

        Args:
            path: Where to write, or what tells it when the file is created.
            header: Called when the file is created.
        """
        self.path: Path | None = None
        self._path = path
        self._header = header
        self._header_payload = b""
        self._file: BinaryIO | None = None
        self._owner = 0
        self._closed = False
        self._compressor = Compressor()
        self._offset = self._end = 0
        self._dirty = False
        self._names = Interner()
        self._written = self._tentative = AT_FIRST
        self._index = IndexBuilder()
        self._value_offsets: dict[bytes, tuple[int, int]] = {}

    def open(self) -> BinaryIO:
        """Create the file and write the header; a second call changes nothing.

        Raises:
            TraceExistsError: The file exists.
            TraceError: The trace is closed, or belongs to another process.
            OSError: It cannot be written; then nothing is left of it.
        """
        if self._closed:
            raise TraceError("the trace is closed")
        if self._file is None:
            self._create()
        elif self._owner != os.getpid():
            raise TraceError("the trace belongs to another process")
        assert self._file is not None  # for the type checker
        return self._file

    def _create(self) -> None:
        path = self._path() if callable(self._path) else Path(self._path)
        header = self._header()
        payload = pack_header(header)
        prefix = prefix_bytes(header.format_version)
        record = self._compressor.record(RecordKind.HEADER, payload, len(prefix))
        file = _new_file(path, prefix + record)
        self._offset = self._end = file.tell()
        self._owner = os.getpid()
        self._header_payload = payload
        self.path, self._file = path, file

    @property
    def bytes_written(self) -> int:
        """Size of the file so far."""
        return self._offset

    @property
    def steps_written(self) -> int:
        """Steps of which at least a part is in the file."""
        return len(self._index)

    @property
    def rows_written(self) -> int:
        """Observations in the file so far."""
        return self._index.observations

    def string(self, text: str) -> int:
        """The id of a string.

        Raises:
            TraceLimitError: There are too many.
        """
        return self._names.string(text)

    def shape(self, shape: tuple[int, ...]) -> int:
        """The id of a shape.

        Raises:
            TraceLimitError: There are too many.
        """
        return self._names.shape(shape)

    def site(self, phase: Phase, component: str, field: str, location: str = "") -> int:
        """The id of a site; the location counts when the site is new.

        Raises:
            TraceLimitError: There are too many.
        """
        return self._names.site(phase, component, field, location)

    def not_observed(self, component: str, reason: str) -> None:
        """Note something that the recorder could not see; a repeated note counts once.

        Raises:
            TraceLimitError: There are too many.
        """
        self._names.note(NotObserved(component, reason))

    def value(self, digest: bytes, data: bytes | memoryview) -> tuple[int, int]:
        """Write a tensor's bytes as value records; returns offset and length for `Rows.tensor`.

        The bytes of a digest that was written before are not written again.

        Raises:
            OSError: The file cannot be extended.
        """
        known = self._value_offsets.get(digest)
        if known is not None:
            return known
        view = memoryview(data)
        if view.ndim != 1 or view.itemsize != 1:
            view = view.cast("B")
        size = limits.MAX_VALUE_RECORD
        try:
            places = [
                self._append(RecordKind.VALUE, view[at : at + size])
                for at in range(0, max(len(view), 1), size)
            ]
            if len(self._value_offsets) >= _KNOWN_VALUES:
                self._value_offsets.clear()
            place = self._value_offsets[digest] = places[0][0], len(view)
            self._offset = self._end
        except BaseException:
            self._value_offsets.pop(digest, None)
            self._rewind()
            raise
        return place

    def write(
        self,
        step: int,
        rows: Rows,
        *,
        last: bool = True,
        tail: bool = False,
        micro_batches: int = 1,
        parameters_digest: bytes = _NO_PARAMETERS,
    ) -> None:
        """Append rows as the next part of ``step``, which is the last one or a new one.

        Args:
            step: Number of the step.
            rows: Its observations, or some of them.
            last: Whether this ends the step. After a crash a step that was not ended is told apart
                from the others; the beginning of the next step ends it too.
            tail: Whether the step is the rest after the last update.
            micro_batches: How many forward/backward passes the step had until here.
            parameters_digest: 16 bytes over the parameters; zeros where unknown.

        Raises:
            ValueError: The step is before the last one.
            TraceLimitError: There are too many steps.
            OSError: The file cannot be extended.
        """
        mark = self._index.mark()
        try:
            for part, ends in _and_whether_last(rows.parts()):
                info = ChunkInfo(
                    step, *self._index.place(step), last and ends, tail, micro_batches,
                    parameters_digest,
                )  # fmt: skip
                self._write_part(info, part)
            # Nothing below calls anything, so that a signal cannot come between.
            self._written = self._tentative
            self._offset = self._end
        except BaseException:
            self._index.restore(mark)
            self._rewind()
            raise

    def _write_part(self, info: ChunkInfo, part: Part) -> None:
        digests = self._index.digests_for(info.step)
        if len(part.table):
            digests.update(part.table, self._names.site_columns)
        payload = pack_chunk(info, part, self._names.pack(self._tentative))
        place = self._append(RecordKind.CHUNK, payload)
        self._tentative = self._names.lengths
        self._index.add(info, digests, *place)

    def close(self, *, complete: bool = True, reason: str = "") -> None:
        """Write the footer and close the file; a second call does nothing.

        A trace that was never opened is created, without steps.

        Raises:
            OSError: The footer cannot be written; the file is closed and readable without it.
        """
        if self._closed:
            return
        if self._file is not None and self._owner != os.getpid():
            self.abandon()
            return
        self.open()
        try:
            steps = self._index.steps()
            footer = Footer(steps, complete, reason, steps.content_digest(), self._header_payload)
            payload = pack_footer(footer, self._names.pack(AT_FIRST))
            self._append(RecordKind.FOOTER, payload, trailer_bytes(self._end))
            self._offset = self._end
        except BaseException:
            self._rewind()
            raise
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without a footer, as after a full disk."""
        self._closed = True
        if self._file is not None:
            self._file.close()

    def _append(self, kind: int, raw: bytes | memoryview, after: bytes = b"") -> tuple[int, int]:
        """Write a record at the tentative end; returns its offset and length."""
        file = self.open()
        if self._dirty:
            file.truncate(self._offset)
            file.seek(self._offset)
            self._dirty = False
        offset = self._end
        record = self._compressor.record(kind, raw, offset)
        _write_all(file, record + after)
        self._end = offset + len(record) + len(after)
        return offset, len(record)

    def _rewind(self) -> None:
        """Take back what was written since the last time that all went well."""
        self._end, self._tentative = self._offset, self._written
        if self._file is None or self._file.closed:
            return
        self._dirty = True
        # A half-written record would hide a later one from readers. Where the disk does not even
        # let go of bytes, it is tried again before the next record.
        with contextlib.suppress(OSError):
            self._file.truncate(self._offset)
            self._file.seek(self._offset)
            self._dirty = False


def _write_all(file: BinaryIO, data: bytes) -> None:
    view, written = memoryview(data), 0
    while written < len(data):
        written += file.write(view[written:]) or 0


def _new_file(path: Path, beginning: bytes) -> BinaryIO:
    """A file that has its name only once it has its beginning, so that none is ever unreadable.

    Raises:
        TraceExistsError: The name is taken.
        OSError: The file cannot be written; then nothing is left of it.
    """
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    file = open(hidden, "xb", buffering=0)  # noqa: SIM115 - the writer closes it
    try:
        _write_all(file, beginning)
        _give_name(hidden, path)
    except BaseException:
        file.close()
        raise
    finally:
        hidden.unlink(missing_ok=True)
    return file


def _give_name(hidden: Path, path: Path) -> None:
    try:
        os.link(hidden, path)
    except FileExistsError:
        raise TraceExistsError(f"{path} exists; choose another name or pass --overwrite") from None
    except OSError:
        # A file system without links; a file that came into being just now would be lost.
        if path.exists():
            raise TraceExistsError(
                f"{path} exists; choose another name or pass --overwrite"
            ) from None
        hidden.rename(path)


def _and_whether_last(parts: Iterator[Part]) -> Iterator[tuple[Part, bool]]:
    held = next(parts)
    for part in parts:
        yield held, False
        held = part
    yield held, True
