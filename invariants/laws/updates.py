"""Laws of updates: they happen, they reach the model, and their state goes on."""

from collections.abc import Iterator

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.laws import held
from traceparity.invariants.laws.growing import Marks
from traceparity.invariants.roles import Role
from traceparity.invariants.state import different
from traceparity.invariants.tables import Gradient
from traceparity.tracefmt.records import Phase

UPDATES_HAPPEN = Rule(
    "update",
    "updates-happen",
    "an optimizer whose gradients are cleared again and again updates its parameters in between",
    "is optimizer.step() called, and on the optimizer that was made?",
)
OPTIMIZER_HOLDS = Rule(
    "update",
    "optimizer-holds",
    "the optimizer holds the parameters that receive gradients, and not copies of them",
    "was the optimizer made before the model was wrapped, moved, converted, or a layer replaced? If"
    " a parameter shall stay as it is, requires_grad_(False) says so and saves its gradient",
)
PARAMETERS_MOVE = Rule(
    "update",
    "parameters-move",
    "an update changes each parameter that has a gradient and a rate",
    "does the optimizer write to the parameter itself? Look at its memory layout (is it contiguous,"
    " a view?) and at what runs after the update",
)
MOMENTS_KEPT = Rule(
    "update",
    "moments-kept",
    "the optimizer's state goes on from update to update",
    "was the optimizer's state left out of a load, or the optimizer's state cleared?",
)
_EPS = {"float64": 2.3e-16, "float32": 1.2e-7, "bfloat16": 7.9e-3, "float16": 9.8e-4}
_MARGIN = 256
_CLOSE_TO_NOTHING = 1e-6
_IN_A_ROW = 3
_FEWEST_CLEARED = 3


class UpdatesHappen:
    """Gradients are gathered and thrown away, over and over, and no update ever follows."""

    def __init__(self) -> None:
        self._updated = False

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        self._updated |= bool(facts.updated or facts.skipped)
        if self._updated or not facts.tail or len(facts.rows(Role.UNSEEN_UPDATE)):
            return
        # A program that updates by hand clears the gradients of its module.
        named = [name for name in facts.zero_grads if name != "module"]
        cleared = len(named)
        if cleared >= _FEWEST_CLEARED and len(facts.losses) >= _FEWEST_CLEARED:
            name = named[0]
            yield facts.finding(
                UPDATES_HAPPEN, Phase.OPTIMIZER, name, "step",
                "an update after each gathered gradient",
                f"{len(facts.losses)} backward passes, {cleared} times cleared, no update",
                row=int(facts.rows(Role.ZERO_GRAD)[0]),
            )  # fmt: skip

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())


class OptimizerHolds:
    """Copies that never receive a gradient, or parameters that no optimizer holds."""

    def __init__(self) -> None:
        self._found = False
        self._held = Marks()
        self._moved = Marks()
        self._rooted = Marks()
        self._unheld: dict[int, Finding] = {}
        self._roots: dict[int, str] = {}
        self._held_roots: set[str] = set()

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        if self._found or not facts.updated:
            return
        received, gradients = facts.received, facts.gradients
        held_now = self._held.grow(len(facts.names.tensors)).of
        held_now[received.tensor] = 1
        moved = self._moved.grow(len(facts.names.tensors)).of
        moved[facts.values.tensor[facts.values.changed]] = 1
        rooted = self._rooted.grow(len(facts.names.tensors)).of
        new = received.tensor[(received.kind != Gradient.NONE) & (rooted[received.tensor] == 0)]
        rooted[new] = 1
        self._held_roots.update(held.root_of(facts, name) for name in held.names(facts, new))
        graded = different(gradients.tensor[gradients.kind == Gradient.NONZERO])
        unheld = graded[held_now[graded] == 0]
        if not len(unheld):
            return
        copies = received.tensor[held.anonymous(facts, received.tensor)]
        idle = not (received.kind != Gradient.NONE).any()
        if len(copies) and idle:
            self._found = True
            yield self._copies(facts, len(copies), held.names(facts, unheld))
            return
        for tensor in unheld.tolist():
            if tensor not in self._unheld:
                self._unheld[tensor] = self._left_out(facts, tensor)
                self._roots[tensor] = held.root_of(facts, facts.names.tensors[tensor])

    def _copies(self, facts: StepFacts, count: int, unheld: tuple[str, ...]) -> Finding:
        return facts.finding(
            OPTIMIZER_HOLDS, Phase.OPTIMIZER, facts.updated[0], "params",
            "the parameters of the model",
            f"{count} tensors of no module, none with a gradient; the gradients are those of "
            f"{unheld[0]}" + (f" and {len(unheld) - 1} more" if len(unheld) > 1 else ""),
            row=int(facts.received.row[0]), others=unheld[: held.MOST],
            more=max(0, len(unheld) - held.MOST),
        )  # fmt: skip

    def _left_out(self, facts: StepFacts, tensor: int) -> Finding:
        return facts.finding(
            OPTIMIZER_HOLDS, Phase.OPTIMIZER, facts.names.tensors[tensor], "group",
            "a group of an optimizer", "it receives gradients, and no optimizer holds it",
        )  # fmt: skip

    def end(self) -> Iterator[Finding]:
        """Tell of what no optimizer has held to the end, in a model that one has held parts of."""
        if self._found:
            return
        for tensor, finding in self._unheld.items():
            still = not self._held.of[tensor] and not self._moved.of[tensor]
            if still and self._roots[tensor] in self._held_roots:
                yield finding


class ParametersMove:
    """A gradient, a rate, and yet the same bits after the update, several times in a row."""

    def __init__(self) -> None:
        self._stuck = Marks()
        self._first: dict[int, Finding] = {}

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        if not facts.updated:
            return
        values, updates = facts.values, facts.update_rows
        stuck = self._stuck.grow(len(facts.names.tensors)).of
        moved = values.changed[updates] | values.first[updates]
        stuck[values.tensor[updates[moved]]] = 0
        still = updates[~moved]
        if not len(still) or not moved.any():
            # An optimizer that gathers updates, or none of them can move: nothing to compare with.
            return
        received = dict(
            zip(facts.received.tensor.tolist(), range(len(facts.received.row)), strict=True)
        )
        for at in still.tolist():
            tensor = int(values.tensor[at])
            gradient = received.get(tensor)
            if gradient is None or not self._must_move(facts, at, gradient):
                stuck[tensor] = 0
                continue
            stuck[tensor] += 1
            if stuck[tensor] == 1:
                self._first[tensor] = self._finding(facts, at, gradient)
            elif stuck[tensor] == _IN_A_ROW:
                yield self._first[tensor]

    def _must_move(self, facts: StepFacts, at: int, gradient: int) -> bool:
        """Whether the update is larger than what the precision of the parameter swallows.

        The largest element of a gradient is at least its norm over the root of its size, and no
        element of a parameter is larger than the parameter's norm. An adaptive optimizer's update
        is about its rate, unless the gradient is close to nothing.
        """
        received, values = facts.received, facts.values
        if received.kind[gradient] != Gradient.NONZERO or received.nonfinite[gradient]:
            return False
        row = int(values.row[at])
        eps, size = _EPS.get(facts.dtype(row), 1.0), max(1, int(np.prod(facts.shape(row))))
        largest = float(received.norm[gradient]) / size**0.5
        rate = held.rate(facts, int(values.tensor[at]))
        moves = rate * min(largest, 1.0) > _MARGIN * eps * float(values.norm[at])
        return bool(moves) and largest > _CLOSE_TO_NOTHING

    def _finding(self, facts: StepFacts, at: int, gradient: int) -> Finding:
        tensor = int(facts.values.tensor[at])
        norm, rate = float(facts.received.norm[gradient]), held.rate(facts, tensor)
        return facts.finding(
            PARAMETERS_MOVE, Phase.OPTIMIZER, facts.names.tensors[tensor], "value",
            "another value after the update",
            f"the same bits, with a gradient of norm {norm:.3g} and rate {rate:.3g}",
            row=int(facts.values.row[at]),
        )  # fmt: skip

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())


class MomentsKept:
    """An optimizer's own count of updates begins again while the parameters go on."""

    def __init__(self) -> None:
        self._watched: dict[str, int] = {}
        self._count: dict[str, float] = {}

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        if not facts.updated:
            return
        rows = facts.rows(Role.OPTIMIZER_STATE)
        rows = rows[facts.phase(rows) == Phase.OPTIMIZER]
        sites = facts.columns.site[rows]
        for optimizer in facts.updated:
            site = self._site(facts, optimizer)
            at = np.flatnonzero(sites == site)
            if not len(at):
                continue
            row = int(rows[at[-1]])
            count, before = facts.number(row), self._count.get(optimizer, 0.0)
            self._count[optimizer] = count
            if before > 1 and count == 1 and not self._starts_anew(facts):
                yield facts.finding(
                    MOMENTS_KEPT, Phase.STATE, optimizer, facts.field(row),
                    f"{before + 1:g} after this update", "1: the state was made anew", row=row,
                )  # fmt: skip

    def _site(self, facts: StepFacts, optimizer: str) -> int:
        """The counter of the first parameter that has one; -1 where there is none."""
        if optimizer not in self._watched:
            rows = facts.rows(Role.OPTIMIZER_STATE)
            rows = rows[facts.phase(rows) == Phase.OPTIMIZER]
            for site in facts.columns.site[rows].tolist():
                seen = facts.source.sites[site].site
                if seen.component == optimizer and seen.field.startswith("step["):
                    self._watched[optimizer] = site
                    break
        return self._watched.get(optimizer, -1)

    def _starts_anew(self, facts: StepFacts) -> bool:
        """Whether the parameters began anew too, as in another fit or after a rollback."""
        values = facts.values
        outside = values.changed & (values.phase == Phase.STATE)
        return bool(facts.state.is_parameter[values.tensor[outside]].any())

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())
