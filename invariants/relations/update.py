"""U, the update law: which parameters are trained, held by an optimizer, and changed by it."""

from collections.abc import Iterator

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.subjects import BOOLS, KIND, Subjects
from traceparity.invariants.tables import Gradient
from traceparity.invariants.template import Event, Template
from traceparity.tracefmt.records import Phase

_GRADIENTS = tuple(each.name.lower() for each in Gradient)

TRAINABLE = Template(
    id="update.trainable",
    phase=Phase.STATE,
    noun="parameters",
    says={True: "require gradients", False: "are frozen"},
    fields=KIND,
    scope=("class",),
    needs=(Phase.STATE,),
    hint="requires_grad was switched: look for freezing code, and when it runs",
    shows="requires_grad",
)
HELD = Template(
    id="update.held",
    phase=Phase.STATE,
    noun="parameters",
    says={True: "are held by an optimizer", False: "are held by no optimizer"},
    fields=("requires_grad", *KIND),
    scope=("requires_grad",),
    proposed=(True,),
    needs=(Phase.STATE, Phase.OPTIMIZER),
    hint="the optimizer was made from other tensors: after a copy, a move, a wrapper or a filter",
    shows="group",
)
STRANGERS = Template(
    id="update.strangers",
    phase=Phase.STATE,
    noun="optimizers",
    says={
        False: "hold parameters of the modules that run only",
        True: "hold tensors that no module has",
    },
    fields=("optimizer",),
    scope=("optimizer",),
    needs=(Phase.STATE, Phase.OPTIMIZER),
    hint="the optimizer holds copies of the parameters, which no forward pass uses",
    shows="group",
)
CHANGES = Template(
    id="update.changes",
    phase=Phase.OPTIMIZER,
    noun="parameters at an update",
    says={True: "change", False: "stay as they are"},
    fields=("gradient", "rate_is_zero", "optimizer", *KIND),
    scope=("gradient",),
    needs=(Phase.GRADIENT, Phase.OPTIMIZER),
    hint="the update had no effect: look at the learning rate, the gradient and the optimizer",
    shows="value",
)
RUNS = Template(
    id="update.runs",
    phase=Phase.OPTIMIZER,
    noun="optimizer steps",
    says={True: "update parameters", False: "are left out"},
    fields=("scaled",),
    scope=("scaled",),
    needs=(Phase.OPTIMIZER,),
    hint="the gradient scaler left the update out",
    shows="skipped",
)


class Observer:
    """What happens to parameters."""

    def __init__(self) -> None:
        self._subjects = Subjects()
        self._grouped = 0

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        state, subjects = facts.state, self._subjects
        if facts.first or len(facts.rows(Role.REQUIRES_GRAD)):
            parameters = np.flatnonzero(state.is_parameter)
            trained = state.requires_grad[parameters].astype(np.int64)
            yield from subjects.events(facts, TRAINABLE, parameters, (trained, BOOLS))
        if facts.updated:
            if facts.first or len(facts.rows(Role.GROUP)) or not self._grouped:
                yield from self._held(facts)
            yield from self._changes(facts)
        if facts.updated or facts.skipped:
            scaled = any(name.startswith("scaler") for name in state.counters)
            yield Event(RUNS, (scaled,), not facts.skipped, component="optimizer[0]")

    def _held(self, facts: StepFacts) -> Iterator[Event]:
        state = facts.state
        self._grouped = len(state.group)
        parameters = np.flatnonzero(state.is_parameter)
        held = np.isin(parameters, list(state.group)).astype(np.int64)
        wanted = state.requires_grad[parameters].astype(np.int64)
        yield from self._subjects.events(facts, HELD, parameters, (held, BOOLS), [(wanted, BOOLS)])
        known = set(parameters.tolist())
        for optimizer in facts.updated:
            strange = [
                facts.names.tensors[tensor]
                for tensor, group in state.group.items()
                if tensor not in known and group.startswith(optimizer)
            ]
            yield Event(
                STRANGERS,
                (state.classes.get(optimizer, ""),),
                bool(strange),
                component=strange[0] if strange else optimizer,
                members=strange.copy if strange else None,
            )

    def _changes(self, facts: StepFacts) -> Iterator[Event]:
        rows, received, state = facts.update_rows, facts.received, facts.state
        if facts.skipped:
            return
        tensors = facts.values.tensor[rows]
        kinds = np.full(len(facts.names.tensors), Gradient.UNKNOWN, np.int64)
        kinds[received.tensor] = received.kind
        names = [state.group.get(tensor, "") for tensor in tensors.tolist()]
        groups = list(dict.fromkeys(names))
        number = {group: at for at, group in enumerate(groups)}
        of_group = np.array([number[name] for name in names], np.int64)
        classes = [state.classes.get(group.partition(" ")[0], "") for group in groups]
        still = np.array([facts.rates_used.get(group, 1.0) == 0 for group in groups], np.int64)
        labels = sorted(set(classes))
        of_class = np.array([labels.index(name) for name in classes], np.int64)
        changed = facts.values.changed[rows].astype(np.int64)
        yield from self._subjects.events(
            facts,
            CHANGES,
            tensors,
            (changed, BOOLS),
            [
                (kinds[tensors], _GRADIENTS),
                (still[of_group], BOOLS),
                (of_class[of_group], labels),
            ],
            facts.values.row[rows],
        )


TEMPLATES = (TRAINABLE, HELD, STRANGERS, CHANGES, RUNS)
