"""What a trace says without its footer: the index rebuilt from the chunks, as far as they are sound."""

from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from traceparity.tracefmt import framing
from traceparity.tracefmt.codec import (
    ChunkInfo,
    Tables,
    extend_tables,
    unpack_chunk_info,
    unpack_columns,
    unpack_map,
)
from traceparity.tracefmt.errors import TraceFormatError, TruncatedError
from traceparity.tracefmt.index import Footer, content_digest, pack_footer
from traceparity.tracefmt.phase_digest import PhaseDigests, site_hash
from traceparity.tracefmt.records import StepEntry


@dataclass(frozen=True, slots=True)
class Recovered:
    """The sound prefix of a file.

    Attributes:
        footer: The index as far as it could be rebuilt.
        tables: Everything interned in the sound prefix.
        end: Where the sound prefix ends, in bytes.
    """

    footer: Footer
    tables: Tables
    end: int


def recover(stream: BinaryIO, offset: int) -> Recovered:
    """Rebuild the index from the records at ``offset`` and after, up to the first unsound one."""
    tables, builder = Tables.empty(), _Builder()
    reason, end = "the recording was cut off before it could finish", offset
    try:
        for head in framing.scan(stream, offset):
            if head.kind == framing.RecordKind.CHUNK:
                data = unpack_map(framing.read_payload(stream, head), "chunk")
                extend_tables(tables, data)
                builder.add(head, unpack_chunk_info(data), data, tables)
            end = head.end
    except TruncatedError:
        pass
    except TraceFormatError as error:
        reason = f"damaged: {error}"
    steps = tuple(builder.steps)
    return Recovered(Footer(steps, False, reason, content_digest(steps)), tables, end)


class _Builder:
    """Puts step entries together, chunk by chunk."""

    def __init__(self) -> None:
        self.steps: list[StepEntry] = []
        self._digests = PhaseDigests()
        self._hashes: list[int] = []
        self._phases: list[int] = []

    def add(
        self, head: framing.RecordHead, info: ChunkInfo, data: dict[str, object], tables: Tables
    ) -> None:
        columns = unpack_columns(data, tables)
        known = len(self._hashes)
        self._hashes += [site_hash(entry.site) for entry in tables.sites[known:]]
        self._phases += [entry.site.phase for entry in tables.sites[known:]]
        last = self.steps[-1] if self.steps else None
        if last is not None and last.number != info.step:
            if last.number > info.step:
                raise TraceFormatError("the steps are out of order")
            last = None
        if last is None:
            self._digests = PhaseDigests()
        if len(columns):
            names = ("site", "call", "microbatch", "flags", "digest")
            rows = {name: getattr(columns, name) for name in names}
            phases = np.array(self._phases, np.uint8)
            self._digests.update(rows, phases, np.array(self._hashes, np.uint64))
        entry = StepEntry(
            number=info.step,
            tail=info.tail,
            chunks=(*(last.chunks if last else ()), (head.offset, head.end - head.offset)),
            observations=tuple(self._digests.counts),
            phase_digests=self._digests.digests(),
            parameters_digest=info.parameters_digest,
            micro_batches=info.micro_batches,
        )
        self.steps[len(self.steps) - (last is not None) :] = [entry]


def finish_file(path: str, reason: str) -> bool:
    """Give a cut-off trace the footer that it lacks; returns whether it lacked one.

    What follows the last sound record is cut away: it is the half-written step of a killed process.

    Raises:
        TraceFormatError: The file does not even begin as a trace.
        OSError: The file cannot be changed.
    """
    with open(path, "r+b") as stream:
        if framing.footer_offset(stream) is not None:
            return False
        stream.seek(0)
        framing.check_prefix(stream.read(framing.PREFIX_SIZE))
        found = recover(stream, framing.PREFIX_SIZE)
        if found.footer.reason.startswith("damaged"):
            return False
        _append_footer(stream, found, reason)
    return True


def _append_footer(stream: BinaryIO, found: Recovered, reason: str) -> None:
    steps = found.footer.steps
    footer = Footer(steps, False, reason, found.footer.content_digest)
    ids = {text: number for number, text in enumerate(found.tables.strings)}
    record = framing.Compressor().record(
        framing.RecordKind.FOOTER, pack_footer(footer, found.tables, ids)
    )
    stream.seek(found.end)
    stream.truncate()
    stream.write(record + framing.trailer_bytes(found.end))
