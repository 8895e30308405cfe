"""Findings: places where a run breaks an invariant."""

from dataclasses import dataclass
from typing import Any

from traceparity.tracefmt.records import Phase

FAMILIES = {
    "U": "update",
    "W": "write",
    "G": "gradient",
    "P": "phase",
    "M": "mode",
    "S": "shape",
    "H": "hyperparameter",
    "D": "data",
    "E": "equality",
    "B": "bounds",
    "R": "randomness",
    "C": "collective",
    "F": "function",
}
"""Letter of each family of invariants, and its name in files and options."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An invariant or built-in law, as far as its findings show it.

    Attributes:
        relation: Name of the family, a value of `FAMILIES`.
        id: Names it in reports and options.
        sentence: What holds, in one sentence.
        hint: What to look at where it does not.
    """

    relation: str
    id: str
    sentence: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where a run breaks an invariant.

    Attributes:
        relation: Name of the family, a value of `FAMILIES`.
        invariant: Id of the invariant or built-in law.
        step: Step of the trace.
        phase: Where in the step it shows.
        component: The parameter, module, loader or group; the first one where several do it.
        field: What of it.
        expected: What the invariant demands, in words or as a plain value.
        seen: What was seen instead, likewise.
        sentence: The invariant in one sentence.
        hint: What to look at.
        rank: Process.
        microbatch: Micro-batch; 0 where it is about the whole step.
        location: Source line that led there, ``file:line``; empty where unknown.
        others: Further components that break it in the same step, the first ones.
        more: How many there are beyond those.
    """

    relation: str
    invariant: str
    step: int
    phase: Phase
    component: str
    field: str
    expected: Any
    seen: Any
    sentence: str
    hint: str = ""
    rank: int = 0
    microbatch: int = 0
    location: str = ""
    others: tuple[str, ...] = ()
    more: int = 0

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Sorts findings in the order of the run: by step, micro-batch, phase, rank."""
        return self.step, self.microbatch, int(self.phase), self.rank
