"""The traces of one run by rank."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


def by_rank(run: Mapping[int, "Trace"]) -> dict[int, "Trace"]:
    """The traces of a run by rank; a single file is the rank that its header says."""
    if len(run) > 1:
        return dict(run)
    # The number is the file's own word: one that no process can have is left out.
    return {
        trace.header.rank if 0 <= trace.header.rank < 1 << 31 else rank: trace
        for rank, trace in run.items()
    }
