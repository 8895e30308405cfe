"""What the samples of a run come to under the declared coverage."""

from dataclasses import dataclass

from traceparity.differ.coverage_scope import ScopeCounts, Violation
from traceparity.differ.policy import Coverage
from traceparity.differ.result import Outcome


@dataclass(frozen=True, slots=True)
class ScopeReport:
    """One epoch of one loader, or the whole run of it.

    Attributes:
        loader: Component of the loader.
        epoch: Number of the training pass; None where the whole run is judged.
        counts: What was seen.
        expected: What should have been, and who says so; empty where nobody does.
        violations: How many there are.
        doubts: Why it cannot be said that nothing else is wrong.
    """

    loader: str
    epoch: int | None
    counts: ScopeCounts
    expected: str
    violations: int
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """What the samples of a run come to.

    Attributes:
        declared: The rule.
        violations: The first violations, epoch by epoch.
        violations_total: How many there are.
        doubts: Why the rule cannot be judged in full, the gravest first.
        scopes: What was judged.
    """

    declared: Coverage
    violations: tuple[Violation, ...]
    violations_total: int
    doubts: tuple[str, ...]
    scopes: tuple[ScopeReport, ...]

    @property
    def outcome(self) -> Outcome:
        """A violation is one whatever else is unknown; without one, doubts decide."""
        if self.violations_total:
            return Outcome.FAIL
        return Outcome.ABSTAIN if self.doubts else Outcome.PASS

    @property
    def observations(self) -> int:
        """Samples that were seen, repeated ones each time."""
        return sum(scope.counts.observations for scope in self.scopes)
