"""What cases come to: a verdict each, with the executions and comparisons that it rests on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from traceparity.differ.result import Difference, Outcome

if TYPE_CHECKING:
    from traceparity.differ.result import DiffResult
    from traceparity.verify.run_verdict import RunVerdict
    from traceparity.verify.stage import Played
    from traceparity.verify.zoom import Zoomed

SEVERITY = (Outcome.PASS, Outcome.ABSTAIN, Outcome.FAIL, Outcome.ERROR)
"""From the best to the worst."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the recordings of a case say.

    Attributes:
        outcome: The verdict.
        reason: What it rests on, in one sentence.
        comparison: The comparison that decided; None where none was made.
        check: The check of a single run that decided; None where none was made.
        elsewhere: How the place of an archived reference differs from here in what changes
            numbers: versions and CPU.
        notes: What a reader should know beside the verdict.
        zoom: What a closer look has shown; None where none was taken.
    """

    outcome: Outcome
    reason: str
    comparison: "DiffResult | None" = None
    check: "RunVerdict | None" = None
    elsewhere: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    zoom: "Zoomed | None" = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case, judged.

    Attributes:
        name: Its name.
        kind: Its kind.
        verdict: What it comes to.
        played: The commands that were run.
        seconds: How long it took, comparison included.
        updated: The archived trace that was rewritten; None where none was.
    """

    name: str
    kind: str
    verdict: Verdict
    played: "tuple[Played, ...]" = ()
    seconds: float = 0.0
    updated: Path | None = None

    @property
    def outcome(self) -> Outcome:
        """The verdict's outcome."""
        return self.verdict.outcome


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """All cases of a file that were judged.

    Attributes:
        path: The case file.
        cases: In the order of the file.
        problem: Why none could be judged; empty where they were.
        interrupted: Whether it was ended before all of them were judged.
    """

    path: Path
    cases: tuple[CaseResult, ...] = ()
    problem: str = ""
    interrupted: bool = False

    @property
    def outcome(self) -> Outcome:
        """The worst of the cases' outcomes."""
        return Outcome.ERROR if self.problem else worst([case.outcome for case in self.cases])

    @property
    def reason(self) -> str:
        """How many cases came to what."""
        said = self.problem or counted([case.outcome for case in self.cases])
        return f"interrupted; {said}" if self.interrupted else said


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """The worst of some outcomes: ERROR before FAIL before ABSTAIN before PASS."""
    return max(outcomes, key=SEVERITY.index, default=Outcome.ERROR)


def counted(outcomes: Sequence[Outcome]) -> str:
    """How often there is which outcome, the worst first."""
    counts = [
        f"{outcomes.count(outcome)} {outcome.value}"
        for outcome in reversed(SEVERITY)
        if outcome in outcomes
    ]
    return f"{len(outcomes)} case{'s' if len(outcomes) != 1 else ''}: {', '.join(counts)}"
