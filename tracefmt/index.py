"""The footer: the index of a finished trace, read instead of the chunks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import xxhash

from traceparity.tracefmt.codec import Tables, extend_tables, pack_tables, unpack_map
from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.records import Phase, StepEntry

_PHASES = len(Phase)
_DIGEST = 16


@dataclass(frozen=True, slots=True)
class Footer:
    """What the end of a trace says.

    Attributes:
        steps: The steps in order.
        complete: Whether the recording ended as it should.
        reason: Why it did not; empty for a complete trace.
        content_digest: 32 hexadecimal digits over the judged observations of all steps.
    """

    steps: tuple[StepEntry, ...]
    complete: bool
    reason: str
    content_digest: str


def content_digest(steps: Sequence[StepEntry]) -> str:
    """The digest of everything judged in a trace: equal for two runs with equal observations."""
    hasher = xxhash.xxh3_128()
    for step in steps:
        hasher.update(step.number.to_bytes(8, "little") + b"".join(step.phase_digests))
    return str(hasher.hexdigest())


def pack_footer(footer: Footer, tables: Tables, string_ids: Mapping[str, int]) -> bytes:
    """The payload of the footer record."""
    steps = footer.steps
    data = {
        "complete": footer.complete,
        "reason": footer.reason,
        "content_digest": footer.content_digest,
        "numbers": [step.number for step in steps],
        "tails": [step.tail for step in steps],
        "micro_batches": [step.micro_batches for step in steps],
        "chunks": [[list(chunk) for chunk in step.chunks] for step in steps],
        "observations": [list(step.observations) for step in steps],
        "phase_digests": b"".join(b"".join(step.phase_digests) for step in steps),
        "parameters_digests": b"".join(step.parameters_digest for step in steps),
        **pack_tables(tables, string_ids, (1, 1, 0, 0)),
    }
    packed = msgpack.packb(data, use_bin_type=True)
    assert packed is not None  # noqa: S101 - packb returns None only when it is given a buffer
    return bytes(packed)


def unpack_footer(payload: bytes) -> tuple[Footer, Tables]:
    """The footer and the complete tables of the file.

    Raises:
        TraceFormatError: The footer is damaged.
    """
    data = unpack_map(payload, "footer")
    tables = Tables.empty()
    extend_tables(tables, data)
    try:
        return Footer(
            steps=_steps(data),
            complete=bool(data["complete"]),
            reason=str(data["reason"]),
            content_digest=str(data["content_digest"]),
        ), tables
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TraceFormatError(f"the footer is damaged: {error!r}") from error


def _steps(data: dict[str, Any]) -> tuple[StepEntry, ...]:
    digests, parameters = data["phase_digests"], data["parameters_digests"]
    count, width = len(data["numbers"]), _PHASES * _DIGEST
    if len(digests) != count * width or len(parameters) != count * _DIGEST:
        raise ValueError("a column has a wrong length")
    columns = ("numbers", "tails", "chunks", "observations", "micro_batches")
    rows = zip(*(data[name] for name in columns), strict=True)
    return tuple(
        StepEntry(
            number=number,
            tail=tail,
            chunks=tuple((int(offset), int(length)) for offset, length in chunks),
            observations=tuple(int(each) for each in observations),
            phase_digests=tuple(
                digests[at : at + _DIGEST]
                for at in range(row * width, (row + 1) * width, _DIGEST)
            ),
            parameters_digest=parameters[row * _DIGEST : (row + 1) * _DIGEST],
            micro_batches=micro,
        )
        for row, (number, tail, chunks, observations, micro) in enumerate(rows)
    )
