"""Laws of gradients: they begin from nothing, they come from the loss, and windows are alike."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.laws import held
from traceparity.invariants.roles import Role
from traceparity.invariants.tables import Gradient
from traceparity.tracefmt.records import Phase

GRADIENTS_CLEARED = Rule(
    "gradient",
    "gradients-cleared",
    "gradients of an update are cleared before those of the next one are gathered",
    "is optimizer.zero_grad() called once for each update, and on this optimizer?",
)
LOSS_DEPENDS = Rule(
    "gradient",
    "loss-depends",
    "an update that follows a backward pass has gradients to work with",
    "is the loss detached (detach, item, data, no_grad, argmax), or are gradients dropped between"
    " the backward pass and the update?",
)
WINDOWS_ALIKE = Rule(
    "gradient",
    "windows-alike",
    "the first update gathers as many micro-batches as the following ones",
    "does the loop update on `index % n == 0` where it should on `(index + 1) % n == 0`?",
)
_SAME_WINDOWS = 3


class GradientsCleared:
    """The first backward pass of an update adds to what the update before has used."""

    def __init__(self) -> None:
        self._updated: set[str] = set()

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        before = self._updated
        if not facts.gap and facts.left_gradients and before.intersection(facts.updated):
            left = facts.left_gradients[0]
            tensor = facts.names.tensor(left.first_kept)
            optimizer = "" if tensor is None else held.owner(facts, tensor)
            cleared = facts.zero_grads
            if (
                left.microbatch == 0
                and left.kept
                and optimizer in before
                and optimizer in facts.updated
                and optimizer not in cleared
                and "module" not in cleared
            ):
                yield facts.finding(
                    GRADIENTS_CLEARED, Phase.GRADIENT, left.first_kept, "grad",
                    "no gradient, or zero, when the step's first backward pass begins",
                    f"{left.kept} parameters still hold the gradient of the update before",
                    row=left.row,
                )  # fmt: skip
        before.update(facts.updated)

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())


class LossDepends:
    """A backward pass, an update, and not one gradient."""

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        received = facts.received
        if not len(received.row) or (received.kind != Gradient.NONE).any():
            return
        # Backward passes of a closure come within the update, after what it was entered with.
        update = int(received.row.min())
        losses = [loss for loss in facts.losses if loss.row < update]
        if not losses or held.anonymous(facts, received.tensor).any():
            return
        left = facts.gradients
        left_by_pass = left.tensor[(left.kind != Gradient.NONE) & (left.row < update)]
        own = left_by_pass[np.isin(left_by_pass, received.tensor)]
        if len(own):
            yield self._lost(facts, int(own[0]))
        elif not len(left_by_pass):
            seen = "no parameter received a gradient"
            if not len(facts.rows(Role.GRAD_OUTPUT)):
                seen += ", nor did any module's output: the loss depends on none of them"
            yield facts.finding(
                LOSS_DEPENDS, Phase.BACKWARD, "loss", "value", "gradients of parameters", seen,
                row=losses[0].row,
            )  # fmt: skip

    def _lost(self, facts: StepFacts, tensor: int) -> Finding:
        at = int(np.flatnonzero(facts.received.tensor == tensor)[0])
        return facts.finding(
            LOSS_DEPENDS, Phase.GRADIENT, facts.names.tensors[tensor], "grad",
            "the gradient that the backward pass has left", "None for every parameter",
            row=int(facts.received.row[at]),
        )  # fmt: skip

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())


class WindowsAlike:
    """The first update comes too early, and all others after the same number of passes."""

    def __init__(self) -> None:
        self._first: Finding | None = None
        self._first_size = 0
        self._next: list[int] = []
        self._applies = True

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        if not self._applies or facts.tail:
            return
        # Several optimizers take turns, a resume begins anywhere: their windows mean other things.
        loaded = facts.first and len(facts.rows(Role.CHECKPOINT)) > 0
        self._applies = len(facts.updated) == 1 and not loaded and not facts.gap
        self._applies &= facts.view.all_steps and bool(facts.losses)
        if facts.first:
            self._first_size = facts.micro_batches
            self._first = facts.finding(
                WINDOWS_ALIKE, Phase.OPTIMIZER, (*facts.updated, "")[0], "step",
                "", f"an update after {facts.micro_batches}",
            )  # fmt: skip
            return
        self._next.append(facts.micro_batches)
        wanted = self._next[0]
        if len(self._next) < _SAME_WINDOWS:
            return
        alike = all(size == wanted for size in self._next[:_SAME_WINDOWS])
        if self._applies and alike and self._first and self._first_size < wanted:
            expected = f"{wanted} micro-batches, as in the updates that follow"
            yield replace(self._first, expected=expected)
        self._applies = False

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())
