"""Signs that a run trains nothing: agreement of such runs passes, but says little."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from traceparity.tracefmt.records import Flag, Kind, Phase, StepEntry

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

_NOTHING = bytes(16)


class Stillness:
    """Watches what never changes over the compared steps."""

    def __init__(self) -> None:
        self._seen: dict[str, set[bytes]] = {}
        self._updates: list[int] = []

    def take(self, entry: StepEntry) -> None:
        """Look at what the index says of one compared step of the reference."""
        if entry.tail:
            return
        # The first and the last are enough.
        self._updates = [*self._updates[:1], entry.number]
        for what, digest in (
            ("the loss is the same in every step", entry.phase_digests[Phase.LOSS]),
            ("the gradients are the same in every step", entry.phase_digests[Phase.GRADIENT]),
        ):
            self._seen.setdefault(what, set()).add(digest)

    def notes(self, reference: "Trace | None") -> Iterable[str]:
        """A sentence for each thing that never changed, where there was time to.

        Args:
            reference: The trace of which steps were taken, to read the parameters from; None where
                these are no part of what was compared.

        Raises:
            TraceFormatError: A step is damaged.
        """
        if not self._updates:
            yield "no update was compared: nothing was trained where the runs agree"
        if len(self._updates) < 2:
            return
        still = [
            what
            for what, digests in self._seen.items()
            if len(digests) == 1 and _NOTHING not in digests
        ]
        # What lies elsewhere is not fetched for a note.
        if reference is not None and not reference.is_remote:
            first, last = (_parameters(reference, number) for number in self._updates)
            if first and first == last:
                still.append("the parameters are the same after the last update as after the first")
        for what in still:
            yield f"dead agreement: {what}, so this comparison shows little"


def _parameters(trace: "Trace", number: int) -> dict[int, bytes]:
    """The digest of each parameter that a step updates, by site."""
    sites = [entry.site for entry in trace.sites]
    is_value = np.array([site.phase == Phase.OPTIMIZER and site.field == "value" for site in sites])
    found: dict[int, bytes] = {}
    for columns in trace.parts(number):
        decides = (columns.flags & Flag.CONTEXT) == 0
        rows = np.flatnonzero(is_value[columns.site] & (columns.kind == Kind.TENSOR) & decides)
        found |= {int(columns.site[row]): columns.digest[row].tobytes() for row in rows.tolist()}
    return found
