"""Checkers: what judges a run while its facts go by, offline and while it trains alike."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding


class Checker(Protocol):
    """Judges the steps of one process, which come in order."""

    def step(self, facts: StepFacts) -> Iterable[Finding]:
        """Judge a step; the findings of one step may come in any order."""
        ...

    def end(self) -> Iterable[Finding]:
        """Judge what only the end of the run shows."""
        ...


class RankChecker(Protocol):
    """Judges the processes of a run against one another."""

    def step(self, ranks: Sequence[StepFacts]) -> Iterable[Finding]:
        """Judge a step of all processes that have it, by rank."""
        ...

    def end(self) -> Iterable[Finding]:
        """Judge what only the end of the run shows."""
        ...
