"""Signs that a run trains nothing: agreement of such runs passes, but says little."""

from collections.abc import Iterable

from traceparity.tracefmt.records import Phase, StepEntry

_NOTHING = bytes(16)


class Stillness:
    """Watches, from the index alone, what never changes over the compared steps."""

    def __init__(self) -> None:
        self._seen: dict[str, set[bytes]] = {}
        self._steps = 0

    def take(self, entry: StepEntry) -> None:
        """Look at one compared step of the reference."""
        self._steps += not entry.tail
        for what, digest in (
            ("the loss is the same in every step", entry.phase_digests[Phase.LOSS]),
            ("the gradients are the same in every step", entry.phase_digests[Phase.GRADIENT]),
            ("the parameters never change", entry.parameters_digest),
        ):
            if not entry.tail:
                self._seen.setdefault(what, set()).add(digest)

    def notes(self) -> Iterable[str]:
        """A sentence for each thing that never changed, where there was time to."""
        if not self._steps:
            yield "no update was compared: nothing was trained where the runs agree"
        if self._steps < 2:
            return
        for what, digests in self._seen.items():
            if len(digests) == 1 and _NOTHING not in digests:
                yield f"dead agreement: {what}, so this comparison shows little"
