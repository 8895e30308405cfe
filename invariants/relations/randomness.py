"""R, the randomness law: which parts of a run draw random numbers."""

from collections.abc import Iterator

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.template import Event, Plain, Template
from traceparity.tracefmt.records import Phase

_SAYS: dict[Plain, str] = {True: "draw random numbers", False: "draw no random numbers"}

FORWARD = Template(
    id="randomness.forward",
    phase=Phase.FORWARD,
    noun="training forward passes",
    says=_SAYS,
    fields=("root",),
    scope=("root",),
    needs=(Phase.STATE, Phase.FORWARD),
    hint="dropout and noise, and at train and eval mode",
    shows="draws",
)
EVALUATION = Template(
    id="randomness.evaluation",
    phase=Phase.FORWARD,
    noun="evaluations",
    says=_SAYS,
    fields=("class",),
    scope=("class",),
    needs=(Phase.FORWARD,),
    hint="dropout is active in the evaluation: look at eval(), and at functional calls",
    shows="draws",
)


class Observer:
    """Random numbers of torch's own generator."""

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        before = after = None
        for phase, name, digest, evaluation in facts.random:
            if name != "rng.torch" or evaluation:
                continue
            if phase == Phase.STATE:
                before = digest
            elif after is None:
                after = digest
        # The window opens with the first forward pass, so nothing else lies between both.
        if before is not None and after is not None:
            root = facts.state.classes.get("", "")
            yield Event(FORWARD, (root,), before != after, component="")
        for call in facts.evaluations:
            if call.draws is not None:
                kind = facts.state.classes.get(call.module, "")
                yield Event(EVALUATION, (kind,), call.draws, component=call.module, row=call.row)


TEMPLATES = (FORWARD, EVALUATION)
