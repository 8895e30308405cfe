"""Watched calls: what functions that users named do, among the passes and updates of a run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from traceparity.invariants.roles import Role
from traceparity.invariants.state import different
from traceparity.tracefmt.records import Kind, Phase

if TYPE_CHECKING:
    from traceparity.invariants.facts import StepFacts
    from traceparity.invariants.state import Ids

FORWARD, BACKWARD, EVALUATION, EPOCH_END = "forward", "backward", "evaluation", "epoch end"
CALLED, ENDED = "called", "ended"


class Call(msgspec.Struct):
    """A call of a watched function, from its first row on.

    Attributes:
        function: Its name, as the user gave it.
        phase: Where in a step it began.
        grad: Whether gradients were enabled; None where unknown.
        step: Step in which it began.
        row: Row of that step.
        inside: Names of the watched functions that were under way, the outermost first.
        contains: What happened during it.
    """

    function: str
    phase: Phase
    grad: bool | None
    step: int
    row: int
    inside: tuple[str, ...] = ()
    contains: set[str] = msgspec.field(default_factory=set)


class Mark(msgspec.Struct, frozen=True):
    """Something that happened in a step, in the order of a run.

    Attributes:
        row: Row of the step.
        what: `CALLED`, `ENDED`, a pass, an epoch's end, or a call of the trainings' own such as
            ``optimizer[0].step``.
        function: Of a watched call its name, else empty.
    """

    row: int
    what: str
    function: str = ""

    @property
    def is_update(self) -> bool:
        """Whether an optimizer updated parameters, or a gradient scaler kept it from that."""
        return self.what.endswith("].step")


def function_of(component: str) -> str:
    """The name of a watched function, by the component of its rows."""
    return component.removesuffix("()")


def marks_of(facts: "StepFacts") -> list[Mark]:
    """What happened in a step, in order."""
    marks = [*_calls(facts), *_passes(facts), *_updates(facts), *_epochs(facts)]
    return sorted(marks, key=lambda mark: mark.row)


def _epochs(facts: "StepFacts") -> Iterator[Mark]:
    for row in facts.rows(Role.PASS_END).tolist():
        if facts.component(row).startswith("loader["):
            yield Mark(row, EPOCH_END)


def _calls(facts: "StepFacts") -> Iterator[Mark]:
    for row in facts.rows(Role.WATCHED).tolist():
        what = facts.field(row)
        if what in (CALLED, ENDED):
            yield Mark(row, what, function_of(facts.component(row)))


def _passes(facts: "StepFacts") -> Iterator[Mark]:
    outputs, losses = facts.rows(Role.OUTPUT), {loss.microbatch: loss.row for loss in facts.losses}
    trained = facts.trained(outputs)
    batches = facts.columns.microbatch[trained]
    for batch in different(batches).tolist():
        rows: Ids = trained[batches == batch]
        before = rows[rows < losses.get(batch, len(facts.columns.site))]
        # The output of the root comes last.
        yield Mark(int((before if len(before) else rows)[-1]), FORWARD)
    for row in losses.values():
        yield Mark(row, BACKWARD)
    for call in facts.evaluations:
        yield Mark(call.row, EVALUATION)


def _updates(facts: "StepFacts") -> Iterator[Mark]:
    rows = facts.rows(Role.HYPERPARAMETER)
    seen: set[str] = set()
    for row in rows[facts.phase(rows) == Phase.OPTIMIZER].tolist():
        name = facts.component(row).partition(" ")[0]
        if name not in seen:
            seen.add(name)
            yield Mark(row, f"{name}.step")
    for row in facts.rows(Role.SKIPPED).tolist():
        yield Mark(row, f"{facts.component(row)}.step")
    for clip in facts.clips:
        yield Mark(clip.row, clip.function)
    counters = facts.rows(Role.COUNTER)
    for row in counters[facts.phase(counters) == Phase.SCHEDULER].tolist():
        name, _, counter = facts.component(row).rpartition(".")
        if counter == "last_epoch":
            yield Mark(row, f"{name} step")


def begun(facts: "StepFacts", mark: Mark) -> Call:
    """The call that begins at a mark."""
    said = facts.scalar(mark.row)
    grad = said.get("grad") if isinstance(said, dict) else None
    phase = Phase(int(facts.names.phase[facts.columns.site[mark.row]]))
    enabled = grad if isinstance(grad, bool) else None
    return Call(mark.function, phase, enabled, facts.step, mark.row)


def described(facts: "StepFacts", row: int) -> Any:
    """A value as it is learned: a plain one itself, of a tensor its kind."""
    if facts.columns.kind[row] != Kind.TENSOR:
        return facts.scalar(row)
    dims = len(facts.shape(row))
    return f"a {facts.dtype(row)} tensor with {dims} dimension{'' if dims == 1 else 's'}"
