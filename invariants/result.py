"""What a check against invariants comes to."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from traceparity.invariants.causes import Cause, causes_beside
from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding
from traceparity.invariants.invariant import Invariant
from traceparity.invariants.judge import Coverage, Judge


class InvariantsResult(msgspec.Struct, frozen=True):
    """All that a check against invariants found.

    Attributes:
        file: Where the invariants are from.
        findings: In the order of the run.
        causes: The findings, grouped.
        coverage: How far each invariant was exercised.
        accepted: How many findings were accepted or follow from those, by id of the invariant.
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
    """A run that is judged while its steps go by."""

    def __init__(self, invariants: Sequence[Invariant], file: Path) -> None:
        self._judge = Judge(invariants)
        self._file = str(file)
        self._found: list[Finding] = []

    def begin_segment(self) -> None:
        """What follows is read from other traces, in which the run went on."""
        self._judge.begin_segment()

    def group(self, group: Sequence[StepFacts]) -> None:
        """The next step, of all processes that have it, by rank."""
        for facts in group:
            self._found += self._judge.step(facts)
        self._found += self._judge.ranks(group)

    def result(self) -> InvariantsResult:
        """What it came to; there are no more steps."""
        found = sorted([*self._found, *self._judge.end()], key=lambda each: each.order)
        causes, covered = causes_beside(found, [*self._judge.waived.values()])
        told = [each for cause in causes for each in (cause.first, *cause.follow)]
        accepted = dict(self._judge.accepted)
        for name, count in covered.items():
            accepted[name] = accepted.get(name, 0) + count
        return InvariantsResult(
            self._file,
            tuple(sorted(told, key=lambda each: each.order)),
            tuple(causes),
            tuple(self._judge.coverage()),
            accepted,
        )
