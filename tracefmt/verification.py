"""Verification: reads all of a file, and says what of it is lost."""

import contextlib
import os
from dataclasses import dataclass, field

from traceparity.tracefmt import framing
from traceparity.tracefmt.errors import (
    ForeignFileError,
    TraceError,
    TraceFormatError,
    VersionError,
)
from traceparity.tracefmt.framing import Gap, RecordKind
from traceparity.tracefmt.index import unpack_footer
from traceparity.tracefmt.location import Location, RemoteLocation, location
from traceparity.tracefmt.phase_digest import HASHED, PhaseDigests, SiteColumns
from traceparity.tracefmt.plain import decode_plain
from traceparity.tracefmt.reader import Trace, open_trace
from traceparity.tracefmt.records import Columns, Damage, Flag, Kind, StepEntry
from traceparity.tracefmt.source import Source, open_source


@dataclass(frozen=True, slots=True)
class Verdict:
    """How sound a file is.

    Attributes:
        path: The file.
        size: Its length in bytes.
        records: How many sound records it has.
        steps: How many steps can be read in full.
        lost: Numbers of the steps of which something is lost.
        unfinished: The step that was being written when the recording was cut off; None where
            there is none.
        damage: Every stretch of the file that cannot be used, in order.
        complete: Whether the recording ended as it should, and the file says so.
        reason: Why it is incomplete; empty where it is not.
    """

    path: Location
    size: int
    records: int
    steps: int
    lost: tuple[int, ...]
    unfinished: int | None
    damage: tuple[Damage, ...]
    complete: bool
    reason: str

    @property
    def sound(self) -> bool:
        """Whether the recording is complete, and every byte of the file as it was written."""
        return self.complete and not self.damage and not self.lost


def verify(path: str | os.PathLike[str] | RemoteLocation) -> Verdict:
    """Read all of a trace and compare it with its checksums and digests.

    Raises:
        TraceNotFoundError: There is no such file.
        ForeignFileError: It is no trace.
        VersionError: A newer major version wrote it.
        TraceError: It cannot be read.
    """
    place = location(path)
    reason = ""
    try:
        trace = open_trace(place)
    except (ForeignFileError, VersionError):
        raise
    except TraceFormatError as error:
        reason = str(error).removeprefix(f"{place}: ")
        trace = None
    try:
        with contextlib.closing(open_source(place)) as source, trace or contextlib.nullcontext():
            verification = _Verification(source)
            verification.records()
            if trace is None:
                return verification.verdict(place, reason)
            verification.trace(trace)
            return verification.verdict(place, trace.incomplete_reason, trace)
    except OSError as error:
        raise TraceError(f"{place}: {error.strerror or error}") from error


@dataclass(slots=True)
class _Found:
    """A damage in the making."""

    end: int
    reason: str
    steps: set[int] = field(default_factory=set)


class _Verification:
    """Gathers damage, by where it begins."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._size = source.size
        self._damage: dict[int, _Found] = {}
        self._records = 0
        self._lost: set[int] = set()
        self._sites = SiteColumns()

    def verdict(self, path: Location, reason: str, trace: Trace | None = None) -> Verdict:
        """What was found."""
        known = self._lost.union(*(found.steps for found in self._damage.values()))
        unfinished = trace.unfinished.number if trace and trace.unfinished else None
        return Verdict(
            path=path,
            size=self._size,
            records=self._records,
            steps=sum(step.number not in known for step in trace.steps) if trace else 0,
            lost=tuple(sorted(known - {unfinished})),
            unfinished=unfinished,
            damage=tuple(
                Damage(offset, found.end, found.reason, tuple(sorted(found.steps)))
                for offset, found in sorted(self._damage.items())
            ),
            complete=bool(trace and trace.complete),
            reason=reason,
        )

    def records(self) -> None:
        """Check that the file is records from end to end, and the payload of each."""
        try:
            framing.check_prefix(self._source.read_at(0, framing.PREFIX_SIZE))
        except TraceFormatError as error:
            self._note(0, min(framing.PREFIX_SIZE, self._size), str(error))
        for found in framing.scan(self._source, framing.PREFIX_SIZE):
            if isinstance(found, Gap):
                self._note(found.offset, found.end, found.reason)
                continue
            try:
                framing.read_payload(self._source, found)
                self._records += 1
            except TraceFormatError as error:
                self._note(found.offset, found.end, str(error))

    def trace(self, trace: Trace) -> None:
        """Check that the records say what the index says."""
        self._lost.update(trace.lost)
        for damage in trace.damage:
            self._note(damage.offset, damage.end, damage.reason)
        for entry in trace.sites:
            self._sites.append(entry.site)
        for step in [*trace.steps, *([trace.unfinished] if trace.unfinished else [])]:
            self._step(trace, step)
        self._footer(trace)

    def _note(self, offset: int, end: int, reason: str, step: int | None = None) -> None:
        found = self._damage.setdefault(offset, _Found(end, reason))
        if step is not None:
            found.steps.add(step)

    def _step(self, trace: Trace, step: StepEntry) -> None:
        digests, sound = PhaseDigests(), True
        for offset, length in step.chunks:
            try:
                columns = trace.chunk(offset, length)
            except TraceFormatError as error:
                reason = str(error).removeprefix(f"{trace.path}: ")
                self._note(offset, offset + length, reason, step.number)
                sound = False
                continue
            if len(columns):
                digests.update({name: getattr(columns, name) for name in HASHED}, self._sites)
            for row in (columns.value_offset >= 0).nonzero()[0].tolist():
                self._value(trace, columns, row, step.number, (offset, offset + length))
        told = (step.phase_digests, step.observations)
        if sound and told != (digests.digests(), tuple(digests.counts)):
            place = step.chunks[0]
            reason = f"step {step.number} is not what the index says of it"
            self._note(place[0], sum(place), reason, step.number)

    def _value(
        self, trace: Trace, columns: Columns, row: int, step: int, chunk: tuple[int, int]
    ) -> None:
        try:
            if int(columns.flags[row]) & Flag.EXTERNAL_VALUE:
                self._value_records(columns, row, step)
            elif columns.kind[row] != Kind.TENSOR:
                decode_plain(trace.value(columns, row) or b"")
        except TraceFormatError as error:
            self._note(*chunk, str(error), step)

    def _value_records(self, columns: Columns, row: int, step: int) -> None:
        offset, length = int(columns.value_offset[row]), int(columns.value_length[row])
        while length > 0:
            if offset in self._damage:
                self._damage[offset].steps.add(step)
                return
            head = framing.read_head(self._source, offset)
            if head is None or head.kind != RecordKind.VALUE or not 0 < head.raw_length <= length:
                raise TraceFormatError(f"no value record lies at byte {offset}")
            length -= head.raw_length
            offset = head.end

    def _footer(self, trace: Trace) -> None:
        offset, end = framing.footer_offset(self._source), self._size - framing.TRAILER_SIZE
        if offset is None:
            return
        try:
            head = framing.read_head(self._source, offset)
        except TraceFormatError:
            head = None
        if head is None or head.kind != RecordKind.FOOTER or head.end != end:
            if not any(found.end == end for found in self._damage.values()):
                self._note(end, self._size, f"it points to byte {offset}, where no index lies")
            return
        try:
            footer, _ = unpack_footer(framing.read_payload(self._source, head), 0, offset)
        except TraceFormatError as error:
            self._note(offset, end, str(error))
            return
        if footer.content_digest != trace.content_digest:
            self._note(offset, end, "its content digest is not that of the steps")
