"""The reader: opens a trace, finished or not, and gives its steps as columns."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from traceparity.tracefmt import framing, limits
from traceparity.tracefmt.codec import join_columns, unpack_chunk, unpack_columns, unpack_header
from traceparity.tracefmt.errors import TraceError, TraceFormatError, TraceNotFoundError
from traceparity.tracefmt.framing import RecordKind
from traceparity.tracefmt.index import Footer, Steps, unpack_footer
from traceparity.tracefmt.location import Location, RemoteLocation, location
from traceparity.tracefmt.memory import keep_freed_memory
from traceparity.tracefmt.noise import unpack_noise
from traceparity.tracefmt.plain import decode_plain
from traceparity.tracefmt.records import (
    Columns,
    Damage,
    Flag,
    Header,
    NotObserved,
    SiteEntry,
    StepEntry,
)
from traceparity.tracefmt.recovery import recover
from traceparity.tracefmt.source import Source, open_source
from traceparity.tracefmt.tables import Tables

_MOST_OPEN = 64
"""Ranks of a run up to which all files are held open."""
_EXTERNAL = int(Flag.EXTERNAL_VALUE)
"""As a plain number: `&` of flags is slow."""
_RANK_FILE = re.compile(r"rank([0-9]{1,9})\.trace")


@dataclass(frozen=True, slots=True)
class Opened:
    """What is read of a file when it is opened; see `Trace`."""

    header: Header
    steps: Steps
    tables: Tables
    complete: bool
    reason: str
    damage: tuple[Damage, ...] = ()
    lost: tuple[int, ...] = ()
    noise: bytes = b""


class Trace:
    """One trace, opened for reading. Only the index is in memory; steps are read when asked for.

    Attributes:
        path: Where the file lies.
        header: What was known when recording began.
        complete: Whether the recording ended as it should, and the file says so.
        incomplete_reason: Why it did not.
        content_digest: 32 hexadecimal digits over all judged observations.
        strings: The interned strings, by id.
        shapes: The interned shapes, by id.
        sites: The interned sites, by id.
        steps: What the index knows of each step, in order.
        unfinished: The step that was being written when the recording was cut off, as far as it
            is in the file; None where there is none.
        not_observed: What the recorder could not see.
        damage: What is known to be damaged without reading all steps.
        lost: Numbers of the steps that are known to be lost by it.
        noise: How far equal runs differ, by site; None where that was not measured.
    """

    def __init__(self, path: Location, source: Source, opened: Opened) -> None:
        keep_freed_memory()
        steps, tables = opened.steps, opened.tables
        self.path = path
        self.header = opened.header
        self.complete = opened.complete
        self.incomplete_reason = opened.reason
        self.unfinished = steps[-1] if len(steps) and not steps.table["whole"][-1] else None
        self.steps: Sequence[StepEntry] = steps.whole()
        self.content_digest = steps.content_digest()
        self.strings: list[str] = tables.strings
        self.shapes: list[tuple[int, ...]] = tables.shapes
        self.sites: list[SiteEntry] = tables.sites
        self.not_observed: list[NotObserved] = tables.not_observed
        self.damage = opened.damage
        self.lost = opened.lost
        self.noise: dict[str, float] | None = unpack_noise(opened.noise) if opened.noise else None
        self._source = source
        self._tables = tables
        self._all_steps = steps

    def __enter__(self) -> "Trace":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def observations(self) -> int:
        """Rows of all steps, by the index."""
        return self._all_steps.observations

    @property
    def is_remote(self) -> bool:
        """Whether its bytes lie elsewhere, so that each costs a transfer."""
        return isinstance(self.path, RemoteLocation)

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def columns(self, number: int) -> Columns:
        """The observations of a step as one table.

        Raises:
            KeyError: There is no such step.
            TraceFormatError: The step is damaged, or too long for one table.
        """
        with self._locating(number):
            parts, size = [], 0
            for head, stored in self._chunks(number):
                size += head.raw_length
                if size > limits.MAX_STEP:
                    raise TraceFormatError(
                        f"it takes more than {limits.MAX_STEP} bytes; read it part by part"
                    )
                parts.append(self._unpacked(head, stored))
            return join_columns(parts)

    def parts(self, number: int) -> Iterator[Columns]:
        """The observations of a step in the pieces in which they are stored, one at a time.

        Raises:
            KeyError: There is no such step.
            TraceFormatError: The step is damaged.
        """
        with self._locating(number):
            for head, stored in self._chunks(number):
                yield self._unpacked(head, stored)

    def chunk(self, offset: int, length: int) -> Columns:
        """The observations in one chunk, by its place in `StepEntry.chunks`.

        Raises:
            TraceFormatError: The chunk is damaged.
        """
        with self._locating():
            return self._unpacked(*framing.read_chunk(self._source, offset, length))

    def verify_step(self, number: int) -> None:
        """See that a step's bytes are sound, without unpacking them.

        Those of a remote trace are left where they are: to fetch them all is what the index saves.

        Raises:
            KeyError: There is no such step.
            TraceFormatError: The step is damaged.
        """
        if self.is_remote:
            return
        with self._locating():
            for _ in self._chunks(number):
                pass

    def _chunks(self, number: int) -> Iterator[tuple[framing.RecordHead, memoryview]]:
        places = self._places(number)
        if places is None:
            raise KeyError(number)
        for offset, length in places:
            yield framing.read_chunk(self._source, offset, length)

    def _places(self, number: int) -> Sequence[tuple[int, int]] | None:
        return self._all_steps.places(number)

    def _unpacked(self, head: framing.RecordHead, stored: memoryview) -> Columns:
        _, fields = unpack_chunk(framing.unpacked(stored, head))
        return unpack_columns(fields, self._tables)

    def value(self, columns: Columns, row: int) -> bytes | None:
        """The kept bytes of a row of ``columns``; None where none were kept.

        Raises:
            TraceFormatError: The value is damaged, or too long to be given in one piece.
        """
        if columns.value_offset[row] < 0:
            return None
        length = int(columns.value_length[row])
        if length > limits.MAX_VALUE:
            raise TraceFormatError(
                f"{self.path}: a value takes {length} bytes; read it piece by piece"
            )
        return b"".join(self.value_pieces(columns, row))

    def value_pieces(self, columns: Columns, row: int) -> Iterator[bytes]:
        """The kept bytes of a row in pieces of at most 64 MiB; none where none were kept.

        Raises:
            TraceFormatError: The value is damaged.
        """
        offset, length = int(columns.value_offset[row]), int(columns.value_length[row])
        if offset < 0:
            return
        if not int(columns.flags[row]) & _EXTERNAL:
            yield columns.values[offset : offset + length]
            return
        with self._locating():
            yield from self._value_records(offset, length)

    def _value_records(self, offset: int, length: int) -> Iterator[bytes]:
        while length > 0:
            head = framing.read_head(self._source, offset)
            if head is None or head.kind != RecordKind.VALUE or not 0 < head.raw_length <= length:
                raise TraceFormatError(f"no value record lies at byte {offset}")
            yield framing.read_payload(self._source, head)
            length -= head.raw_length
            offset = head.end

    def scalar(self, columns: Columns, row: int) -> Any:
        """The plain value of a scalar, marker or sample-ID row.

        Raises:
            TraceFormatError: The value is damaged.
        """
        value = self.value(columns, row)
        with self._locating():
            return None if value is None else decode_plain(value)

    @contextmanager
    def _locating(self, number: int | None = None) -> Iterator[None]:
        """Errors get the path, and the step: further down nobody knows them."""
        try:
            yield
        except TraceFormatError as error:
            step = "" if number is None else f"step {number}: "
            error.args = (f"{self.path}: {step}{error}",)
            raise
        except OSError as error:
            raise TraceError(f"{self.path}: {error.strerror or error}") from error


def open_trace(path: str | os.PathLike[str] | RemoteLocation) -> Trace:
    """Open one trace file; a file without a sound footer is opened as far as it is sound.

    Args:
        path: A path, or a URL that fsspec knows, as a text.

    Raises:
        TraceNotFoundError: There is no such file.
        TraceFormatError: It is no trace, or so damaged that nothing of it can be used.
        TraceError: It cannot be read.
    """
    return _open(location(path))


def _open(path: Location, *, resting: bool = False) -> Trace:
    try:
        source = open_source(path, resting=resting)
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        return Trace(path, source, _read(source))
    except TraceFormatError as error:
        source.close()
        # The message gets the path here: below this point nobody knows it.
        error.args = (f"{path}: {error}",)
        raise
    except OSError as error:
        source.close()
        raise TraceError(f"{path}: {error.strerror or error}") from error
    except BaseException:
        source.close()
        raise


def _read(source: Source) -> Opened:
    version = framing.check_prefix(source.read_at(0, framing.PREFIX_SIZE))
    lost_footer, lost_header = "", ""
    found: tuple[Footer, Tables] | None = None
    try:
        found = _footer(source)
    except TraceFormatError as error:
        lost_footer = f"damaged: {error}; the index was rebuilt from the steps"
    try:
        _, head = framing.read_beginning(source)
        header = unpack_header(framing.read_payload(source, head), version)
    except TraceFormatError as error:
        if found is None:
            raise
        lost_header = f"damaged: {error}; the header was read from its copy"
        header = unpack_header(found[0].header, version)
    if found is not None:
        footer, tables = found
        complete = footer.complete and not lost_header
        reason = lost_header or footer.reason
        return Opened(header, footer.steps, tables, complete, reason, noise=footer.noise)
    recovered = recover(source, head.end)
    reason = recovered.reason if recovered.lost or not lost_footer else lost_footer
    return Opened(
        header, recovered.steps, recovered.tables, False, reason, recovered.damage, recovered.lost
    )


def _footer(source: Source) -> tuple[Footer, Tables] | None:
    offset = framing.footer_offset(source)
    if offset is None:
        return None
    head = framing.read_head(source, offset)
    end = source.size - framing.TRAILER_SIZE
    if head is None or head.kind != RecordKind.FOOTER or head.end != end:
        raise TraceFormatError(f"no index lies at byte {offset}")
    payload = framing.read_payload(source, head)
    return unpack_footer(payload, framing.PREFIX_SIZE + framing.HEAD_SIZE, offset)


def open_run(path: str | os.PathLike[str] | RemoteLocation) -> dict[int, Trace]:
    """Open a run: one trace file, or a folder with a ``rank<N>.trace`` for each process.

    Args:
        path: A path, or a URL that fsspec knows, as a text.

    Returns:
        The traces by rank, in order of rank; a single file is rank 0, whatever its header says.

    Raises:
        TraceNotFoundError: There is no such file or folder, or the folder holds no trace.
        TraceFormatError: One of the files is unsound, or two claim the same rank.
        TraceError: One of them cannot be read.
    """
    traces: dict[int, Trace] = {}
    try:
        files = run_files(path)
        for rank, file in files.items():
            traces[rank] = _open(file, resting=len(files) > _MOST_OPEN)
    except BaseException:
        for trace in traces.values():
            trace.close()
        raise
    return traces


def run_files(path: str | os.PathLike[str] | RemoteLocation) -> dict[int, Location]:
    """Where the trace of each rank of a run lies, in order of rank; nothing is opened.

    Raises:
        TraceNotFoundError: It is a folder that holds no trace.
        TraceFormatError: Two files of the folder claim the same rank.
        TraceError: The folder cannot be read.
    """
    place = location(path)
    try:
        files = _files(place)
    except FileNotFoundError:
        raise TraceNotFoundError(f"{place}: no such file or folder") from None
    except OSError as error:
        raise TraceError(f"{place}: {error.strerror or error}") from error
    if files is None:
        return {0: place}
    ranks: dict[int, Location] = {}
    for name, file in sorted(files.items()):
        match = _RANK_FILE.fullmatch(name)
        if match and ranks.setdefault(int(match[1]), file) != file:
            raise TraceFormatError(f"{place}: two files are rank {int(match[1])}")
    if not ranks:
        raise TraceNotFoundError(f"{place}: the folder holds no rank<N>.trace")
    return dict(sorted(ranks.items()))


def _files(place: Location) -> dict[str, Location] | None:
    """The files of a folder by name; None for what is no folder."""
    if isinstance(place, RemoteLocation):
        from traceparity.tracefmt.remote import child, list_remote

        names = list_remote(place)
        return None if names is None else {name: child(place, name) for name in names}
    return {entry.name: entry for entry in place.iterdir()} if place.is_dir() else None
