"""What a trace says without its footer: the index, rebuilt from the chunks that are sound.

A chunk says how long the tables were before it. So after damage the chunks that follow are used as
well, unless they need names that went with the damaged one.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from traceparity.tracefmt import framing, limits, tables
from traceparity.tracefmt.codec import ChunkInfo, unpack_chunk, unpack_columns
from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.framing import Gap, RecordHead, RecordKind
from traceparity.tracefmt.index import Footer, IndexBuilder, Steps, pack_footer
from traceparity.tracefmt.payload import Fields
from traceparity.tracefmt.phase_digest import HASHED, SiteColumns
from traceparity.tracefmt.records import Columns, Damage
from traceparity.tracefmt.source import Source, StreamSource
from traceparity.tracefmt.tables import AT_FIRST, Tables

CUT_OFF = "the recording was cut off before it could finish"
_MOST_GUESSED = 1000
"""Missing step numbers that one stretch of damage is held to have cost: steps may have been left
out on purpose, only the last before a sound chunk is known."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the records of a file say.

    Attributes:
        steps: The index as far as it could be rebuilt.
        tables: Everything interned in it.
        damage: What could not be used.
        lost: Numbers of the steps of which something is missing, as far as they can be told.
        end: Where the last sound record ends, the footer left out, in bytes.
        cut: Whether the file ends inside a record.
    """

    steps: Steps
    tables: Tables
    damage: tuple[Damage, ...]
    lost: tuple[int, ...]
    end: int
    cut: bool

    @property
    def reason(self) -> str:
        """Why the trace is incomplete, for people."""
        if not self.damage:
            reason = "damaged: parts of steps are missing" if self.lost else CUT_OFF
        else:
            first, more = self.damage[0], len(self.damage) - 1
            reason = f"damaged: {first.reason}" + (f", and {more} more places" if more else "")
        return f"{reason}; lost steps: {numbers(self.lost)}" if self.lost else reason


def numbers(steps: Sequence[int], most: int = 10) -> str:
    """Step numbers for people, the first few of them."""
    more = len(steps) - most
    return ", ".join(map(str, steps[:most])) + (f" and {more} more" if more > 0 else "")


def recover(source: Source, offset: int) -> Recovered:
    """Rebuild the index from the records at ``offset`` and after."""
    rebuilding, end, cut = Rebuilding(), offset, False
    for found in framing.scan(source, offset):
        if isinstance(found, Gap):
            cut = found.cut
            if not cut:
                rebuilding.damaged(found.offset, found.end, found.reason)
            continue
        if found.kind == RecordKind.CHUNK:
            rebuilding.chunk(source, found)
        if found.kind != RecordKind.FOOTER:
            end = found.end
    return Recovered(
        steps=rebuilding.index.steps(),
        tables=rebuilding.tables,
        damage=tuple(rebuilding.damage),
        lost=tuple(sorted(rebuilding.lost)),
        end=end,
        cut=cut,
    )


class Rebuilding:
    """Puts the index together, chunk by chunk.

    Attributes:
        tables: Everything interned so far.
        index: The index so far.
        damage: What could not be used.
        lost: Numbers of the steps of which something is missing.
    """

    def __init__(self) -> None:
        self.tables = Tables()
        self.index = IndexBuilder()
        self.damage: list[Damage] = []
        self.lost: set[int] = set()
        self._newest = -1
        self._sites = SiteColumns()

    def damaged(self, offset: int, end: int, reason: str) -> None:
        """Take note of bytes that are no sound record."""
        self.damage.append(Damage(offset, end, reason))

    def chunk(self, source: Source, head: RecordHead) -> None:
        """Take in the chunk at ``head``."""
        try:
            info, fields = unpack_chunk(framing.read_payload(source, head))
            self._extend(fields.fields("tables"))
            columns = unpack_columns(fields, self.tables)
            self._check_order(info)
        except TraceFormatError as error:
            self.damaged(head.offset, head.end, str(error))
            return
        if self._continues(info):
            self._add(info, columns, head)

    def _extend(self, fields: Fields) -> None:
        if tables.base_of(fields) != self.tables.lengths:
            raise TraceFormatError("a chunk needs names from another one that is lost")
        tables.extend(self.tables, fields)

    def _check_order(self, info: ChunkInfo) -> None:
        if not max(self._newest, info.previous_step) <= info.step < 1 << 63:
            raise TraceFormatError(f"a chunk of step {info.step} follows step {self._newest}")
        if len(self.index) >= limits.MAX_STEPS:
            raise TraceFormatError(f"more than {limits.MAX_STEPS} steps")

    def _continues(self, info: ChunkInfo) -> bool:
        """Whether the chunk follows what there is; if not, something before it is lost."""
        index, newest = self.index, self._newest
        before = (info.previous_step, info.previous_parts)
        self._newest = info.step
        if info.step != newest and before not in ((0, 0), (index.last, index.parts)):
            if index.last is not None and (
                index.last == info.previous_step or not index.last_is_whole
            ):
                self._lose(index.last)
            self.lost.update(range(newest + 1, info.previous_step + 1)[-_MOST_GUESSED:])
        expected = index.parts if info.step == index.last else 0
        if info.step not in self.lost and info.part != expected:
            self._lose(info.step)
        return info.step not in self.lost

    def _lose(self, step: int) -> None:
        self.lost.add(step)
        if self.index.last == step:
            self.index.drop_last()

    def _add(self, info: ChunkInfo, columns: Columns, head: RecordHead) -> None:
        digests = self.index.digests_for(info.step)
        if len(columns):
            for entry in self.tables.sites[len(self._sites) :]:
                self._sites.append(entry.site)
            digests.update({name: getattr(columns, name) for name in HASHED}, self._sites)
        self.index.add(info, digests, head.offset, head.end - head.offset)


def finish_file(path: str | os.PathLike[str], reason: str) -> bool:
    """Give a cut-off trace the footer that it lacks; returns whether it did.

    What follows the last sound record is cut away: it is the half-written step of a killed process.
    A finished or damaged file is left as it is.

    Raises:
        TraceFormatError: The file does not even begin as a trace.
        OSError: The file cannot be changed.
    """
    with open(path, "r+b") as stream:
        source = StreamSource(stream)
        if framing.footer_offset(source) is not None:
            return False
        _, head = framing.read_beginning(source)
        header = framing.read_payload(source, head)
        found = recover(source, head.end)
        if found.damage:
            return False
        footer = Footer(found.steps, False, reason, found.steps.content_digest(), header)
        payload = pack_footer(footer, tables.reinterned(found.tables).pack(AT_FIRST))
        record = framing.Compressor().record(RecordKind.FOOTER, payload, found.end)
        stream.seek(found.end)
        stream.truncate()
        stream.write(record + framing.trailer_bytes(found.end))
    return True
