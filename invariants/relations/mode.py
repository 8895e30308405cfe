"""M, the mode law: which modules train and which evaluate when they are called."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.subjects import pattern_of
from traceparity.invariants.template import Event, Plain, Template
from traceparity.tracefmt.records import Phase

_SAYS: dict[Plain, str] = {True: "are in train mode", False: "are in eval mode"}

TRAINING = Template(
    id="mode.training",
    phase=Phase.FORWARD,
    noun="modules in a training forward pass",
    says=_SAYS,
    fields=("class", "path"),
    scope=("class",),
    needs=(Phase.STATE, Phase.FORWARD),
    hint="train() before the step, and for an eval() that nothing takes back",
    shows="training",
)
EVALUATION = Template(
    id="mode.evaluation",
    phase=Phase.FORWARD,
    noun="models in an evaluation",
    says=_SAYS,
    fields=("class",),
    scope=("class",),
    needs=(Phase.FORWARD,),
    hint="eval() before the evaluation",
    shows="training",
)


class Observer:
    """Train and eval flags."""

    def __init__(self) -> None:
        self._key: tuple[bytes, bytes] | None = None
        self._known: list[tuple[Event, int]] = []

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        rows = facts.trained(facts.rows(Role.OUTPUT))
        if len(rows):
            called = facts.subject(rows)
            # Most steps call the same modules in the same modes.
            key = called.tobytes(), facts.training.tobytes()
            if key != self._key:
                different, first = np.unique(called, return_index=True)
                events = _training(facts, different.tolist())
                self._key, self._known = key, [(event, int(first[at])) for event, at in events]
            for event, at in self._known:
                yield replace(event, row=int(rows[at]))
        for call in facts.evaluations:
            kind = facts.state.classes.get(call.module, "")
            yield Event(EVALUATION, (kind,), call.training, component=call.module, row=call.row)


def _training(facts: StepFacts, called: list[int]) -> Iterator[tuple[Event, int]]:
    """Events, and the place of the first module of each."""
    found: dict[tuple[str, str, bool], list[int]] = {}
    flags, names, classes = facts.training, facts.names.modules, facts.state.classes
    for at, number in enumerate(called):
        flag = int(flags[number])
        if flag >= 0:
            name = names[number]
            key = classes.get(name, ""), pattern_of(name), bool(flag)
            found.setdefault(key, []).append(at)
    for (kind, path, training), places in found.items():
        members = [names[called[at]] for at in places]
        event = Event(
            TRAINING,
            (kind, path),
            training,
            len(members),
            component=members[0],
            members=members.copy,
        )
        yield event, places[0]


TEMPLATES = (TRAINING, EVALUATION)
