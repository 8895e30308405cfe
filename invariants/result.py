"""What a check against invariants comes to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from traceparity.invariants.causes import Cause, causes_of
from traceparity.invariants.finding import Finding
from traceparity.invariants.invariant import Invariant
from traceparity.invariants.judge import Coverage, Judge
from traceparity.invariants.reading import FactsReader
from traceparity.tracefmt.records import Columns

if TYPE_CHECKING:
    from traceparity.invariants.facts import StepFacts
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


class JudgedRun:
    """A run that is judged while its steps go by; in a step rank by rank."""

    def __init__(self, invariants: Sequence[Invariant], file: Path) -> None:
        self._judge = Judge(invariants)
        self._file = str(file)
        self._found: list[Finding] = []
        self._readers: dict[int, FactsReader] = {}
        self._tails: dict[int, set[int]] = {}
        self._group: list[StepFacts] = []
        self._begun = False

    def begin_segment(self, ranks: Mapping[int, "Trace"]) -> None:
        """What follows is read from these traces."""
        self._end_step()
        if self._begun:
            self._judge.begin_segment()
        self._begun = True
        self._readers = {rank: FactsReader(trace, rank) for rank, trace in ranks.items()}
        self._tails = {
            rank: {entry.number for entry in trace.steps if entry.tail}
            for rank, trace in ranks.items()
        }

    def step(self, rank: int, number: int, columns: Columns) -> None:
        """The next step of a process."""
        if self._group and self._group[0].step != number:
            self._end_step()
        tail = number in self._tails[rank]
        facts = self._readers[rank].step(number, columns, tail=tail)
        self._found += self._judge.step(facts)
        self._group.append(facts)

    def _end_step(self) -> None:
        if self._group:
            self._found += self._judge.ranks(self._group)
            self._group = []

    def result(self) -> InvariantsResult:
        """What it came to; there are no more steps."""
        self._end_step()
        found = sorted([*self._found, *self._judge.end()], key=lambda each: each.order)
        return InvariantsResult(
            self._file,
            tuple(found),
            tuple(causes_of(found)),
            tuple(self._judge.coverage()),
            self._judge.accepted,
        )
