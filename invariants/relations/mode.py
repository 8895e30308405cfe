"""M, the mode law: which modules train and which evaluate when they are called."""

from collections.abc import Iterator

import numpy as np

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
    hint="look for train() before the step, and for an eval() that nothing takes back",
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
    hint="look for eval() before the evaluation",
    shows="training",
)


class Observer:
    """Train and eval flags."""

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        rows = facts.trained(facts.rows(Role.OUTPUT))
        if len(rows):
            yield from self._training(facts, np.unique(facts.subject(rows)).tolist())
        for call in facts.evaluations:
            kind = facts.state.classes.get(call.module, "")
            yield Event(EVALUATION, (kind,), call.training, component=call.module, row=call.row)

    def _training(self, facts: StepFacts, called: list[int]) -> Iterator[Event]:
        found: dict[tuple[str, str, bool], list[str]] = {}
        flags, names, classes = facts.state.training, facts.names.modules, facts.state.classes
        for number in called:
            flag = int(flags[number])
            if flag < 0:
                continue
            name = names[number]
            key = classes.get(name, ""), pattern_of(name), bool(flag)
            found.setdefault(key, []).append(name)
        for (kind, path, training), members in found.items():
            yield Event(
                TRAINING,
                (kind, path),
                training,
                len(members),
                component=members[0],
                members=members.copy,
            )


TEMPLATES = (TRAINING, EVALUATION)
