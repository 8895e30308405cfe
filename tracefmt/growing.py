"""A trace that another process is still writing, followed step by step."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from traceparity.tracefmt import framing
from traceparity.tracefmt.codec import unpack_header
from traceparity.tracefmt.errors import TraceError, TraceFormatError
from traceparity.tracefmt.framing import RecordHead, RecordKind
from traceparity.tracefmt.reader import Opened, Trace
from traceparity.tracefmt.records import StepEntry
from traceparity.tracefmt.recovery import Rebuilding
from traceparity.tracefmt.source import StreamSource, open_file

_STILL_WRITTEN = "it is still being written"


class GrowingTrace(Trace):
    """What a trace has so far; `grow` takes in what came since, at a cost of what came alone.

    ``steps`` holds the steps of which at least an update is in the file. Only the last of them may
    grow: its scheduler, or a further optimizer of the same update, may follow. ``sites``,
    ``strings`` and ``shapes`` grow in place. ``complete`` stays False and ``content_digest`` that
    of nothing: what the end of a file says is for `open_trace`.

    Attributes:
        ended: Whether the file has got its index, after which nothing comes.
    """

    def __init__(self, path: Path, source: StreamSource) -> None:
        """Take a file that begins with a header.

        Raises:
            TraceFormatError: It is no trace.
        """
        version, head = framing.read_beginning(source)
        header = unpack_header(framing.read_payload(source, head), version)
        self._rebuilding = Rebuilding()
        nothing = self._rebuilding.index.steps()
        opened = Opened(header, nothing, self._rebuilding.tables, False, _STILL_WRITTEN)
        super().__init__(path, source, opened)
        self._growing = source
        self._entries: dict[int, StepEntry] = {}
        self._whole: list[StepEntry] = []
        self._newest: StepEntry | None = None
        self._offset = head.end
        self.steps = self._whole
        self.ended = False

    def grow(self) -> list[int]:
        """Take in what was written since the last call.

        Returns:
            Numbers of the steps in ``steps`` that are new or got more, in order.

        Raises:
            TraceError: The file cannot be read any more.
        """
        grown: dict[int, None] = {}
        with self._locating():
            for head in self._new_records():
                if head.kind == RecordKind.CHUNK:
                    self._take(head, grown)
        return list(grown)

    def _new_records(self) -> list[RecordHead]:
        found: list[RecordHead] = []
        size = self._growing.measure()
        while not self.ended and self._offset < size:
            try:
                head = framing.read_head(self._growing, self._offset)
            except TraceFormatError:
                # Half of a record, or bytes that a full disk will have taken back: come again.
                break
            if head is None:
                break
            found.append(head)
            self._offset, self.ended = head.end, head.kind == RecordKind.FOOTER
        return found

    def _take(self, head: RecordHead, grown: dict[int, None]) -> None:
        index = self._rebuilding.index
        self._rebuilding.chunk(self._growing, head)
        if self._rebuilding.damage or self._rebuilding.lost:
            raise TraceError("what is written there cannot be followed")
        entry = index.newest()
        self._entries[entry.number] = entry
        before = self._newest
        if before is not None and before.number < entry.number and not before.whole:
            # A step that was never said to be over is, since another one has begun.
            self._add(replace(before, whole=True), grown)
        self._newest = entry
        if entry.whole or self._is_last(entry):
            self._add(entry, grown)

    def _add(self, entry: StepEntry, grown: dict[int, None]) -> None:
        if self._is_last(entry):
            self._whole[-1] = entry
        else:
            self._whole.append(entry)
        grown[entry.number] = None

    def _is_last(self, entry: StepEntry) -> bool:
        return bool(self._whole) and self._whole[-1].number == entry.number

    def _places(self, number: int) -> Sequence[tuple[int, int]] | None:
        entry = self._entries.get(number)
        return None if entry is None else entry.chunks


def follow(path: Path) -> GrowingTrace:
    """Open a trace that is being written; see `GrowingTrace`.

    Raises:
        TraceFormatError: It is no trace.
        TraceError: It cannot be read.
    """
    try:
        source = open_file(path)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error
    try:
        return GrowingTrace(path, source)
    except TraceFormatError as error:
        source.close()
        error.args = (f"{path}: {error}",)
        raise
