"""A target in several parts, each of which goes on where the one before stopped."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from traceparity.differ.rank_diff import RankReport
from traceparity.differ.result import Divergence

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


@dataclass(slots=True)
class Parts:
    """What the parts of one rank came to, one after the other.

    Attributes:
        count: How many there are.
        ends: The reference step after the last one that the part before this one trained; None
            where that is not known, since there is no such part, or it was cut off.
        steps: Reference steps that some part was compared with.
        begins: Reference step at which each part begins, and how that was found.
        doubts: What of each part speaks for another step.
    """

    count: int
    ends: int | None = None
    steps: set[int] = field(default_factory=set)
    begins: list[tuple[int, str]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def take(self, report: RankReport, trace: "Trace") -> None:
        """A further part was compared."""
        alignment = report.alignment
        if self.count == 1 or alignment is None:
            return
        self.begins.append((alignment.offset, alignment.how))
        self.doubts.append(alignment.doubt)
        trained = [number for number, _ in alignment.pairs]
        self.steps.update(trained)
        self.ends = trained[-1] + 1 if trained and trace.complete else None

    def gap(self, reference: "Trace") -> str:
        """Which steps of the reference no part has although later ones do; empty for none."""
        if len(self.begins) < self.count or not self.steps:
            return ""
        missing = [
            entry.number
            for entry in reference.steps
            if min(self.steps) < entry.number < max(self.steps) and entry.number not in self.steps
        ]
        if not missing:
            return ""
        named = f"steps {missing[0]} to {missing[-1]}" if missing[1:] else f"step {missing[0]}"
        return f"no part of the target has {named} of the reference"

    def notes(self) -> Iterator[str]:
        """Where each part after the first begins."""
        beginnings = zip(self.begins, self.doubts, strict=True)
        for number, ((offset, how), doubt) in enumerate(beginnings, 1):
            if number > 1:
                yet = f", yet {doubt}" if doubt else ""
                yield f"part {number} of the target begins at reference step {offset} ({how}){yet}"


def in_part(report: RankReport, part: int) -> list[Divergence]:
    """The divergences of a report, which from now on say in which part they are."""
    report.divergences = [replace(found, part=part) for found in report.divergences]
    return report.divergences
