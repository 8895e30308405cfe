"""The noise of a run: how far equal runs differ, by site, kept in the footer of its trace."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from traceparity.tracefmt import framing
from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.framing import RecordKind
from traceparity.tracefmt.index import Footer, pack_footer, unpack_footer
from traceparity.tracefmt.plain import decode_plain, encode_plain
from traceparity.tracefmt.source import StreamSource
from traceparity.tracefmt.tables import AT_FIRST, reinterned


def unpack_noise(data: bytes) -> dict[str, float]:
    """The noise that a footer keeps: relative L2 distance by ``phase:component:field``.

    Raises:
        TraceFormatError: It is damaged.
    """
    found = decode_plain(data)
    if not isinstance(found, dict) or not all(_is_limit(value) for value in found.values()):
        raise TraceFormatError("the noise is no table of distances")
    return found


def _is_limit(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value) and value >= 0


def keep_noise(path: Path, noise: Mapping[str, float]) -> None:
    """Write the noise into the footer of a finished trace; all that was recorded stays as it is.

    Raises:
        TraceFormatError: The trace is damaged, or was never finished.
        OSError: It cannot be written.
    """
    with path.open("rb") as stream:
        source = StreamSource(stream)
        offset = framing.footer_offset(source)
        head = None if offset is None else framing.read_head(source, offset)
        if offset is None or head is None or head.kind != RecordKind.FOOTER:
            raise TraceFormatError(f"{path}: the trace has no footer")
        start = framing.PREFIX_SIZE + framing.HEAD_SIZE
        old, names = unpack_footer(framing.read_payload(source, head), start, offset)
        footer = Footer(
            old.steps, old.complete, old.reason, old.content_digest, old.header,
            encode_plain(dict(noise)),
        )  # fmt: skip
        payload = pack_footer(footer, reinterned(names).pack(AT_FIRST))
        record = framing.Compressor().record(RecordKind.FOOTER, payload, offset)
        stream.seek(0)
        before = stream.read(offset)
    import tempfile  # takes time to import, and readers have no use for it

    # Written aside, so that the trace is never without a footer.
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with open(handle, "wb") as out:
        out.write(before + record + framing.trailer_bytes(offset))
    os.replace(aside, path)
