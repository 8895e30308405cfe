"""A built-in law: what it demands, and what judges it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from traceparity.invariants.checker import Checker, RankChecker
from traceparity.invariants.finding import Rule
from traceparity.tracefmt.records import Phase


class RankJudge(RankChecker, Protocol):
    """Judges processes against one another, and says why where it cannot.

    Attributes:
        why_not: Why there was nothing to compare; empty where there was something.
    """

    why_not: str


@dataclass(frozen=True, slots=True)
class Law:
    """A built-in law.

    Attributes:
        rule: Its family, id, sentence, and what to look at.
        judge: Makes what judges one process; None for a law between processes.
        judge_ranks: Makes what judges the processes of a run against one another.
        needs: Phases without which it judges nothing.
    """

    rule: Rule
    judge: Callable[[], Checker] | None = None
    judge_ranks: Callable[[], RankJudge] | None = None
    needs: tuple[Phase, ...] = tuple(Phase)

    @property
    def id(self) -> str:
        """Names it in reports and options."""
        return self.rule.id
