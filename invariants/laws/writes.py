"""Laws of writing: parameters change in updates, and not once or twice in between."""

from collections.abc import Iterator

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.laws import held
from traceparity.invariants.laws.growing import Marks
from traceparity.invariants.roles import Role
from traceparity.tracefmt.records import Phase

WRITES_IN_PHASE = Rule(
    "write",
    "writes-in-phase",
    "parameters that an optimizer holds change in its updates, not now and then between two",
    "what writes to this parameter outside of the optimizer: a hook, an initialisation that runs "
    "late, memory that is shared with something else?",
)
_RARELY = 0.05


class WritesInPhase:
    """Some parameters were changed between two updates, once or rarely.

    What happens after most updates is part of the method (weights kept in a range, masks), and what
    changes all parameters is a load, an average or a swap.
    """

    def __init__(self) -> None:
        self._events: list[tuple[Finding, tuple[int, ...]]] = []
        self._times = Marks()
        self._steps = 0

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step; what happened is told at the end, when it is known how often."""
        self._steps += 1
        values, state = facts.values, facts.state
        outside = np.flatnonzero(values.changed & (values.phase == Phase.STATE))
        if facts.gap or not len(outside):
            return iter(())
        held_by = [
            tensor in state.group and not _renormalised(facts, facts.names.tensors[tensor])
            for tensor in values.tensor[outside].tolist()
        ]
        changed = outside[np.array(held_by) & state.is_parameter[values.tensor[outside]]]
        tensors = values.tensor[changed].tolist()
        self._times.grow(len(facts.names.tensors)).of[tensors] += 1
        loaded = len(facts.rows(Role.CHECKPOINT)) > 0
        if tensors and not loaded and self._others_stay(facts, tensors):
            row = int(values.row[changed[0]])
            self._events.append((self._finding(facts, tensors, row), tuple(tensors)))
        return iter(())

    def _others_stay(self, facts: StepFacts, changed: list[int]) -> bool:
        """Whether further trained parameters of the same models were left as they were."""
        names, group = facts.names.tensors, facts.state.group
        roots = {held.root_of(facts, names[tensor]) for tensor in changed}
        return any(
            facts.state.requires_grad[tensor] and held.root_of(facts, names[tensor]) in roots
            for tensor in group.keys() - set(changed)
        )

    def _finding(self, facts: StepFacts, changed: list[int], row: int) -> Finding:
        names = [facts.names.tensors[tensor] for tensor in changed]
        others = tuple(names[1 : 1 + held.MOST])
        return facts.finding(
            WRITES_IN_PHASE, Phase.STATE, names[0], "value", "what the update before has left",
            "another value when the step begins", row=row, others=others,
            more=len(names) - 1 - len(others),
        )  # fmt: skip

    def end(self) -> Iterator[Finding]:
        """Tell of what happened rarely."""
        most = max(1.0, _RARELY * self._steps)
        for finding, changed in self._events:
            if all(self._times.of[tensor] <= most for tensor in changed):
                yield finding


def _renormalised(facts: StepFacts, name: str) -> bool:
    """Whether a parameter is an embedding that each forward pass keeps in a range."""
    settings = facts.state.settings.get(name.rpartition(".")[0])
    return isinstance(settings, dict) and settings.get("max_norm") is not None
