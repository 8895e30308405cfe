"""The writer: appends a trace to a file, so that any prefix of the file can be read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from traceparity.tracefmt.codec import ChunkInfo, Tables, pack_chunk, pack_header, pack_tables
from traceparity.tracefmt.errors import TraceExistsError
from traceparity.tracefmt.framing import Compressor, RecordKind, prefix_bytes, trailer_bytes
from traceparity.tracefmt.index import Footer, content_digest, pack_footer
from traceparity.tracefmt.phase_digest import PhaseDigests, site_hash
from traceparity.tracefmt.records import Header, NotObserved, Phase, Site, SiteEntry, StepEntry
from traceparity.tracefmt.rows import Rows

VALUE_RECORD = 1 << 26
"""Bytes of a tensor that go into one value record; longer tensors take several in a row."""


class Writer:
    """Writes one trace.

    The file has its final name from the first byte: a killed process leaves a readable trace, and
    there is nothing to rename. It is created by the first part of a step, so a process that has
    nothing to say writes nothing. The caller gives observations as `Rows`, a step in one part or
    several.
    """

    def __init__(
        self, path: str | os.PathLike[str] | Callable[[], Path], header: Callable[[], Header]
    ) -> None:
        """Prepare a trace; no file is touched yet.

        Args:
            path: Where to write, or what tells it when the file is created.
            header: Called when the file is created.
        """
        self._path = path
        self._header = header
        self._file: BinaryIO | None = None
        self._compressor = Compressor()
        self._offset = 0
        self._tables = Tables.empty()
        self._written = (1, 1, 0, 0)
        self._string_ids = {"": 0}
        self._shape_ids: dict[tuple[int, ...], int] = {(): 0}
        self._site_ids: dict[Site, int] = {}
        self._hashes: list[int] = []
        self._site_phases = np.empty(0, np.uint8)
        self._site_hashes = np.empty(0, np.uint64)
        self._steps: list[StepEntry] = []
        self._current: PhaseDigests | None = None
        self._value_offsets: dict[bytes, tuple[int, int]] = {}
        self.path: Path | None = None

    def open(self) -> BinaryIO:
        """Create the file and write the header; a second call changes nothing.

        Raises:
            TraceExistsError: The file exists.
            OSError: It cannot be written.
        """
        if self._file is None:
            path = self._path() if callable(self._path) else Path(self._path)
            try:
                self._file = open(path, "xb", buffering=0)
            except FileExistsError:
                raise TraceExistsError(
                    f"{path} exists; choose another name or pass --overwrite"
                ) from None
            self.path = path
            header = self._header()
            self._append(prefix_bytes(header.format_version))
            self._append(self._compressor.record(RecordKind.HEADER, pack_header(header)))
        return self._file

    @property
    def bytes_written(self) -> int:
        """Size of the file so far."""
        return self._offset

    @property
    def steps_written(self) -> int:
        """Steps of which at least a part is in the file."""
        return len(self._steps)

    @property
    def rows_written(self) -> int:
        """Observations in the file so far."""
        return sum(sum(step.observations) for step in self._steps)

    def string(self, text: str) -> int:
        """The id of a string."""
        found = self._string_ids.get(text)
        if found is None:
            found = self._string_ids[text] = len(self._tables.strings)
            self._tables.strings.append(text)
        return found

    def shape(self, shape: tuple[int, ...]) -> int:
        """The id of a shape."""
        found = self._shape_ids.get(shape)
        if found is None:
            found = self._shape_ids[shape] = len(self._tables.shapes)
            self._tables.shapes.append(shape)
        return found

    def site(self, phase: Phase, component: str, field: str, location: str = "") -> int:
        """The id of a site; the location counts when the site is new."""
        site = Site(phase, component, field)
        found = self._site_ids.get(site)
        if found is None:
            found = self._site_ids[site] = len(self._tables.sites)
            for text in (component, field, location):
                self.string(text)
            self._tables.sites.append(SiteEntry(site, location))
            self._hashes.append(site_hash(site))
        return found

    def not_observed(self, component: str, reason: str) -> None:
        """Note something that the recorder could not see; a repeated note counts once."""
        note = NotObserved(component, reason)
        if note not in self._tables.not_observed:
            self._tables.not_observed.append(note)

    def value(self, digest: bytes, data: bytes | memoryview) -> tuple[int, int]:
        """Write a tensor's bytes as value records; returns offset and length for `Rows.tensor`.

        The bytes of a digest that was written before are not written again.
        """
        known = self._value_offsets.get(digest)
        if known is not None:
            return known
        start, length = self._offset, len(data)
        for at in range(0, max(length, 1), VALUE_RECORD):
            part = bytes(data[at : at + VALUE_RECORD])
            self._append(self._compressor.record(RecordKind.VALUE, part))
        if len(self._value_offsets) >= 1 << 16:
            self._value_offsets.clear()
        self._value_offsets[digest] = start, length
        return start, length

    def write(
        self,
        step: int,
        rows: Rows,
        *,
        tail: bool = False,
        micro_batches: int = 1,
        parameters_digest: bytes = bytes(16),
    ) -> None:
        """Append rows as the next part of ``step``, which is the last one or a new one.

        Raises:
            OSError: The file cannot be extended; what was written before stays readable.
        """
        first = not self._steps or self._steps[-1].number != step
        digests = PhaseDigests() if first or self._current is None else self._current
        last = None if first else self._steps[-1]
        info = ChunkInfo(
            step=step,
            part=len(last.chunks) if last else 0,
            tail=tail,
            micro_batches=micro_batches,
            parameters_digest=parameters_digest,
        )
        record = self._compressor.record(
            RecordKind.CHUNK, pack_chunk(info, rows, pack_tables(self._tables, self._string_ids, self._written))
        )
        offset = self._append(record)
        self._written = (
            len(self._tables.strings),
            len(self._tables.shapes),
            len(self._tables.sites),
            len(self._tables.not_observed),
        )
        if len(rows):
            digests.update(rows.table(), *self._site_arrays())
        self._current = digests
        entry = StepEntry(
            number=step,
            tail=tail,
            chunks=(*(last.chunks if last else ()), (offset, len(record))),
            observations=tuple(digests.counts),
            phase_digests=digests.digests(),
            parameters_digest=parameters_digest,
            micro_batches=micro_batches,
        )
        self._steps[len(self._steps) - (last is not None) :] = [entry]

    def close(self, *, complete: bool = True, reason: str = "") -> None:
        """Write the footer and close the file; a second call does nothing."""
        file = self.open()
        if file.closed:
            return
        try:
            footer = Footer(
                tuple(self._steps), complete, reason, content_digest(self._steps)
            )
            payload = pack_footer(footer, self._tables, self._string_ids)
            offset = self._append(self._compressor.record(RecordKind.FOOTER, payload))
            self._append(trailer_bytes(offset))
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file without a footer, as after a full disk."""
        self._file.close()

    def _site_arrays(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
        known = len(self._site_phases)
        if known < len(self._hashes):
            new = [entry.site.phase for entry in self._tables.sites[known:]]
            self._site_phases = np.concatenate([self._site_phases, np.array(new, np.uint8)])
            self._site_hashes = np.array(self._hashes, np.uint64)
        return self._site_phases, self._site_hashes

    def _append(self, data: bytes) -> int:
        file = self.open()
        offset = self._offset
        written = 0
        view = memoryview(data)
        try:
            while written < len(data):
                written += file.write(view[written:]) or 0
        except OSError:
            # A half-written record would hide a later one from readers.
            file.truncate(offset)
            raise
        self._offset += len(data)
        return offset
