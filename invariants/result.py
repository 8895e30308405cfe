"""What a check against invariants comes to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from traceparity.invariants.causes import Cause, causes_of
from traceparity.invariants.finding import Finding
from traceparity.invariants.invariant import Invariant
from traceparity.invariants.judge import Coverage, Judge
from traceparity.invariants.reading import read_groups

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


@dataclass(frozen=True, slots=True)
class InvariantsResult:
    """All that a check against invariants found.

    Attributes:
        file: Where the invariants are from.
        findings: In the order of the run.
        causes: The findings, grouped.
        coverage: How far each invariant was exercised.
        accepted: How many findings were accepted, by id of the invariant.
    """

    file: str
    findings: tuple[Finding, ...]
    causes: tuple[Cause, ...]
    coverage: tuple[Coverage, ...]
    accepted: Mapping[str, int]

    @property
    def exercised(self) -> int:
        """How many invariants were judged on something."""
        return sum(each.events > 0 for each in self.coverage)

    @property
    def unseen(self) -> tuple[Coverage, ...]:
        """Invariants that the recording leaves out what would tell of."""
        return tuple(each for each in self.coverage if each.unseen)


def judge_segments(
    segments: Sequence[Mapping[int, "Trace"]], invariants: Sequence[Invariant], file: Path
) -> InvariantsResult:
    """Judge a run, in one segment or several.

    Raises:
        TraceError: A trace cannot be used.
    """
    judge = Judge(invariants)
    found: list[Finding] = []
    for number, traces in enumerate(segments):
        if number:
            judge.begin_segment()
        for group in read_groups(traces):
            for facts in group:
                found += judge.step(facts)
            found += judge.ranks(group)
    found += judge.end()
    found.sort(key=lambda each: each.order)
    return InvariantsResult(
        str(file), tuple(found), tuple(causes_of(found)), tuple(judge.coverage()), judge.accepted
    )
