"""W, the write law: parameters and buffers change in the phases in which they may."""

from collections.abc import Iterator

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.state import Ids
from traceparity.invariants.subjects import BOOLS, KIND, Subjects
from traceparity.invariants.template import Event, Template
from traceparity.tracefmt.records import Phase

BETWEEN = Template(
    id="write.between",
    phase=Phase.STATE,
    noun="parameters and buffers between two steps",
    says={False: "stay as they are", True: "change"},
    fields=("loaded", "evaluated", "parameter", *KIND),
    scope=("loaded", "class"),
    needs=(Phase.STATE,),
    hint="something outside of the optimizer wrote to it: a load, a copy, an init, clamping",
    shows="value",
)
FORWARD = Template(
    id="write.forward",
    phase=Phase.FORWARD,
    noun="parameters and buffers in a training forward pass",
    says={False: "stay as they are", True: "change"},
    fields=("parameter", "training", "run_begins", *KIND),
    scope=("parameter", "class"),
    needs=(Phase.STATE, Phase.FORWARD),
    hint="a forward pass wrote, or no longer writes, to it: look at train and eval mode",
    shows="value",
)
BEFORE = Template(
    id="write.before",
    phase=Phase.STATE,
    noun="parameters and buffers when the run begins",
    says="were written to {} times before",
    fields=("loaded", "several_processes", "parameter", *KIND),
    scope=("loaded", "several_processes", "class"),
    support=1,
    needs=(Phase.STATE,),
    hint="an initialisation runs again, or something ran before the training that should not",
    shows="value",
)
_MOST_WRITES = 16


class Observer:
    """Who writes to tensors, beside the optimizer."""

    def __init__(self) -> None:
        self._subjects = Subjects()
        self._evaluated = self._loaded = False
        self._owner: Ids = np.zeros(0, np.int64)

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        state, values = facts.state, facts.values
        tensors = np.flatnonzero(state.known)
        is_parameter = state.is_parameter[tensors].astype(np.int64)
        yield from self._before(facts)
        evaluated, self._evaluated = self._evaluated, bool(len(facts.evaluations))
        if not (facts.first or facts.gap):
            written = self._written(facts, tensors, Phase.STATE)
            loaded = self._loaded or bool(len(facts.rows(Role.CHECKPOINT)))
            fresh = np.zeros(len(facts.names.tensors), bool)
            fresh[values.tensor[values.first]] = True
            new = fresh[tensors]
            between = np.full(len(tensors), evaluated, np.int64)
            yield from self._subjects.events(
                facts,
                BETWEEN,
                tensors[~new],
                (written[~new], BOOLS),
                [
                    (np.full(len(between[~new]), loaded, np.int64), BOOLS),
                    (between[~new], BOOLS),
                    (is_parameter[~new], BOOLS),
                ],
            )
        self._loaded = bool(len(facts.rows(Role.CHECKPOINT)))
        if len(facts.trained(facts.rows(Role.OUTPUT))):
            written = self._written(facts, tensors, Phase.FORWARD)
            training = self._training(facts)[tensors]
            yield from self._subjects.events(
                facts,
                FORWARD,
                tensors,
                (written, BOOLS),
                [
                    (is_parameter, BOOLS),
                    (training, ("unknown", "eval", "train")),
                    (np.full(len(tensors), facts.begins, np.int64), BOOLS),
                ],
            )

    def _before(self, facts: StepFacts) -> Iterator[Event]:
        """How often tensors were written to before the run began."""
        rows = facts.rows(Role.WRITES)
        # What comes later is another model, or a tensor that takes the place of one.
        if not facts.first or not len(rows):
            return
        tensors = facts.subject(rows)
        times = np.array([facts.number(row) for row in rows.tolist()]).astype(np.int64)
        loaded = self._loaded or bool(len(facts.rows(Role.CHECKPOINT)))
        several = facts.source.header.world_size > 1
        yield from self._subjects.events(
            facts,
            BEFORE,
            tensors,
            (np.minimum(times, _MOST_WRITES), range(_MOST_WRITES + 1)),
            [
                (np.full(len(tensors), loaded, np.int64), BOOLS),
                (np.full(len(tensors), several, np.int64), BOOLS),
                (facts.state.is_parameter[tensors].astype(np.int64), BOOLS),
            ],
            rows,
        )

    def _written(self, facts: StepFacts, tensors: Ids, phase: Phase) -> Ids:
        values = facts.values
        here = np.zeros(len(facts.names.tensors), np.int64)
        here[values.tensor[(values.phase == phase) & values.changed]] = 1
        return here[tensors]

    def _training(self, facts: StepFacts) -> Ids:
        """Mode of the module of each tensor: 0 unknown, 1 eval, 2 train."""
        names = facts.names
        if len(self._owner) < len(names.tensors):
            owners = (names.module(name.rpartition(".")[0]) for name in names.tensors)
            self._owner = np.array([-1 if each is None else each for each in owners], np.int64)
        modes: Ids = facts.training[self._owner].astype(np.int64) + 1
        modes[self._owner < 0] = 0
        return modes


TEMPLATES = (BEFORE, BETWEEN, FORWARD)
