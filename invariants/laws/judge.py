"""Judging a run by built-in laws, offline or while it trains."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceparity.invariants.finding import Finding
from traceparity.invariants.laws.law import Law
from traceparity.invariants.laws.seams import Seam

if TYPE_CHECKING:
    from traceparity.invariants.checker import Checker
    from traceparity.invariants.facts import StepFacts, View
    from traceparity.invariants.laws.law import RankJudge


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A law that had nothing to judge.

    Attributes:
        law: It.
        reason: Why.
        unseen: Whether the recording leaves out what would tell.
    """

    law: Law
    reason: str
    unseen: bool


class LawJudge:
    """Takes the steps of a run in order, all processes of a step at once."""

    def __init__(self, laws: Sequence[Law]) -> None:
        self._laws = laws
        self._view: View | None = None
        self._seams: dict[int, Seam] = {}
        self.begin_segment()

    def begin_segment(self) -> None:
        """What follows is read from other traces, in which the run went on."""
        self._judges: dict[int, list[Checker]] = {}
        self._between: dict[str, RankJudge] | None = None
        for seam in self._seams.values():
            seam.begin_segment()

    def step(self, ranks: Sequence["StepFacts"]) -> Iterator[Finding]:
        """Judge a step of all processes that have it, by rank."""
        if not ranks:
            return
        self._view = ranks[0].view
        if self._between is None:
            seen = [law for law in self._laws if self._view.sees(*law.needs)]
            self._between = {law.id: law.judge_ranks() for law in seen if law.judge_ranks}
        # What tells of several processes comes before what tells of one of them.
        for between in self._between.values():
            yield from between.step(ranks)
        for facts in ranks:
            judges = self._judges.get(facts.rank)
            if judges is None:
                seen = [law for law in self._laws if facts.view.sees(*law.needs)]
                judges = self._judges[facts.rank] = [law.judge() for law in seen if law.judge]
            for judge in judges:
                yield from judge.step(facts)
            yield from self._at_seam(facts)

    def _at_seam(self, facts: "StepFacts") -> Iterator[Finding]:
        applied = {law.id for law in self._laws if facts.view.sees(*law.needs)}
        for found in self._seams.setdefault(facts.rank, Seam()).step(facts):
            if found.invariant in applied:
                yield found

    def end(self) -> Iterator[Finding]:
        """Judge what only the end of a segment shows."""
        for between in (self._between or {}).values():
            yield from between.end()
        for judges in self._judges.values():
            for judge in judges:
                yield from judge.end()

    def not_judged(self) -> list[NotJudged]:
        """Laws that had nothing to judge, and why."""
        if self._view is None:
            return [NotJudged(law, "the trace holds no step", unseen=True) for law in self._laws]
        found = []
        for law in self._laws:
            between = (self._between or {}).get(law.id)
            if not self._view.sees(*law.needs):
                reason = "the recording leaves phases or sites out (--phases, --include, --exclude)"
                found.append(NotJudged(law, reason, unseen=True))
            elif between is not None and between.why_not:
                found.append(NotJudged(law, between.why_not, unseen=False))
        return found
