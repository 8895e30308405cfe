"""What a comparison by accumulation leaves out, and why."""

import enum
from collections.abc import Iterator

from traceparity.tracefmt.records import Phase, Site

_SHOWN = 2


class LeftOut(enum.Enum):
    """Why something is not compared, in the words of a report."""

    VALUES = (
        "their values were not kept, so that those of the micro-batches cannot be put together; "
        "record both runs with --capture values to compare them"
    )
    SHAPE = "their shapes are not those of one batch that was cut along dimension 0"
    CALLS = "not every micro-batch has them"
    PLAIN = "they differ from micro-batch to micro-batch"
    ORDER = "the order of samples is free"
    SCALE = "with losses that do not add up, gradients on their way have another scale"
    SCALER = "the gradient scalers have other scales"
    LOSS = 'declared with loss = "skip"'
    WEIGHTS = (
        "the trace does not tell what a micro-batch weighs; of a field of several dimensions only "
        "--capture values does"
    )
    NO_FIELD = "not every batch has the field that tells what a micro-batch weighs"


class Tally:
    """Counts the sites that were left out, over all steps."""

    def __init__(self) -> None:
        self._sites: dict[tuple[Phase, LeftOut], dict[str, None]] = {}

    def add(self, site: Site, reason: LeftOut) -> None:
        """A site was left out in some step."""
        self._sites.setdefault((site.phase, reason), {})[str(site)] = None

    def undecided(self) -> Iterator[LeftOut]:
        """Reasons for which what the policy declares was not judged."""
        reasons = {reason for _, reason in self._sites}
        yield from (reason for reason in (LeftOut.NO_FIELD, LeftOut.WEIGHTS) if reason in reasons)

    def notes(self) -> Iterator[str]:
        """A sentence for each phase and reason."""
        for (phase, reason), sites in sorted(self._sites.items(), key=lambda item: item[0][0]):
            named = ", ".join(list(sites)[:_SHOWN])
            more = f" and {len(sites) - _SHOWN} more" if len(sites) > _SHOWN else ""
            yield f"not compared in the phase {phase.label}: {named}{more}: {reason.value}"
