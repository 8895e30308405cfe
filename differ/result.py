"""What a comparison comes to: the outcome, the first divergence and what was found around it."""

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from traceparity.differ.metrics import Metrics
from traceparity.differ.observation import Observation
from traceparity.differ.policy import Policy

if TYPE_CHECKING:
    from traceparity.differ.coverage_report import CoverageReport

NOTHING_COMPARED = "nothing was compared: the traces hold nothing that decides"
"""The reason where the policy leaves nothing to judge."""


MICRO_BATCHES = "micro_batches"
"""Field of a divergence that is no value: an update took another number of them than declared."""


class Outcome(enum.Enum):
    """The verdict on a declared relation."""

    PASS = "PASS"
    FAIL = "FAIL"
    ABSTAIN = "ABSTAIN"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something that was equal or not around the first divergence; no claim of a cause.

    Attributes:
        what: One word: inputs, parameters, buffers, settings, rng, hyperparameters, ...
        equal: Whether it was equal; None where the question does not arise.
        detail: One sentence.
    """

    what: str
    equal: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """A place where the traces differ.

    Attributes:
        rank: Process.
        step: Step of the reference.
        target_step: Step of the target.
        microbatch: Micro-batch; 0 outside of micro-batches.
        call: The how-manyth time the site was seen.
        phase: Phase.
        component: Component under its name in the target; empty for the root.
        field: Field.
        kind: What sort of difference it is.
        reference: The reference's value; None where it has none.
        target: The target's value; None where it has none.
        metrics: How far apart both are.
        location: Source line in the reference, else in the target.
        target_location: Source line in the target.
        reference_name: Component in the reference where a rename changed it.
        root_class: Class of the root module, which has no path, where it is the component.
        order: Sorts divergences of one step, over ranks too.
        part: Part of the target, from 1; 0 where the target is one trace.
        evidence: What else was equal or not.
    """

    rank: int
    step: int
    target_step: int
    microbatch: int
    call: int
    phase: str
    component: str
    field: str
    kind: str
    reference: Observation | None
    target: Observation | None
    metrics: Metrics
    location: str = ""
    target_location: str = ""
    reference_name: str = ""
    root_class: str = ""
    order: int = 0
    part: int = 0
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One of the two runs."""

    path: str
    ranks: int = 0
    steps: int = 0
    complete: bool = False
    content_digest: str = ""


@dataclass(frozen=True, slots=True)
class Alignment:
    """How steps were lined up: ``how`` says where the offset comes from."""

    kind: str = "start"
    step_offset: int | None = 0
    how: str = "declared"


@dataclass(slots=True)
class Compared:
    """How much was compared; observations are counted on the reference's side.

    Attributes:
        ranks: Processes.
        steps: Pairs of steps.
        observations: Pairs of observations, those that only explain and the skipped ones included.
        skipped_equal: Those of steps that the index alone shows to be equal.
        ignored: Observations that the policy leaves out.
        undecided: Pairs for which the evidence to judge them was not recorded.
        unmatched: Observations of one side only that the policy allows.
        blind: Observations of one side that the other side could not make.
    """

    ranks: int = 0
    steps: int = 0
    observations: int = 0
    skipped_equal: int = 0
    ignored: int = 0
    undecided: int = 0
    unmatched: int = 0
    blind: int = 0

    def add(self, other: "Compared") -> None:
        """Add another count to this one."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Difference:
    """A named property that differs, e.g. a package version."""

    name: str
    reference: Any
    target: Any


@dataclass(frozen=True, slots=True)
class NotSeen:
    """What was not observed, on which side and why."""

    side: str
    component: str
    reason: str


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """How far the runs are apart at a later step.

    Attributes:
        step: Step of the reference.
        loss: Loss in the reference and in the target.
        parameters: Relative L2 distance of the parameters after the step.
    """

    step: int
    loss: tuple[float, float] | None
    parameters: float | None


@dataclass(frozen=True, slots=True)
class DiffResult:
    """All that a comparison found.

    ``undecided_step`` is the first step of the reference in which what was recorded could not
    decide; None where there is none.
    """

    outcome: Outcome
    reason: str
    reference: RunSummary
    target: RunSummary
    policy: Policy = field(default_factory=Policy)
    alignment: Alignment = field(default_factory=Alignment)
    compared: Compared = field(default_factory=Compared)
    first: Divergence | None = None
    divergences: tuple[Divergence, ...] = ()
    environment: tuple[Difference, ...] = ()
    not_observed: tuple[NotSeen, ...] = ()
    notes: tuple[str, ...] = ()
    growth: tuple[GrowthPoint, ...] = ()
    next_commands: tuple[str, ...] = ()
    coverage: "CoverageReport | None" = None
    undecided_step: int | None = None
