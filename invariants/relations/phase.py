"""P, the phase grammar: what a step consists of, and in which order."""

from collections.abc import Iterator

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.state import Ids
from traceparity.invariants.template import Event, Learns, Template
from traceparity.tracefmt.records import Phase

_ALL = (Phase.DATA, Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.GRADIENT, Phase.OPTIMIZER)

PASSES = Template(
    id="phase.passes",
    phase=Phase.DATA,
    noun="forward/backward passes",
    says="consist of {}",
    most_outcomes=3,
    needs=_ALL,
    hint="a call is missing, too many, or at another place in the loop",
    shows="order",
)
ENDS = Template(
    id="phase.ends",
    phase=Phase.GRADIENT,
    noun="steps after their last backward pass",
    says="consist of {}",
    most_outcomes=3,
    needs=_ALL,
    hint="a call between backward() and the next step is missing, too many or out of order",
    shows="order",
)
COUNT = Template(
    id="phase.count",
    phase=Phase.FORWARD,
    noun="steps",
    says="have {} forward/backward passes",
    fields=("epoch_end",),
    most_outcomes=3,
    needs=_ALL,
    hint="the accumulation of gradients, and at where the optimizer steps",
    shows="micro_batches",
)
WAITING = Template(
    id="phase.waiting",
    phase=Phase.FORWARD,
    noun="forward/backward passes that wait for an update",
    says="{}",
    learns=Learns.MOST,
    support=1,
    needs=_ALL,
    hint="optimizer.step(): is it called, and on the optimizer of this model",
    shows="micro_batches",
)

_NAMES = {
    Role.BATCH: "data",
    Role.OUTPUT: "forward",
    Role.LOSS: "loss",
    Role.GRADIENT: "backward",
}


class Observer:
    """The order of a step."""

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        passes = _passes(facts)
        if len(passes) > 0:
            yield Event(WAITING, (), len(passes), component="step")
        if facts.tail or not (facts.updated or facts.skipped):
            return
        counts: dict[str, int] = {}
        for said in passes:
            counts[said] = counts.get(said, 0) + 1
        for said, count in counts.items():
            yield Event(PASSES, (), said, count, component="step")
        ended = any(loader.startswith("loader[") for loader, _ in facts.pass_ends)
        yield Event(COUNT, (ended,), len(passes), component="step")
        if facts.skipped:
            # How often a scaler leaves an update out depends on the values.
            return
        clips = list(dict.fromkeys(clip.function for clip in facts.clips))
        steps = [f"{name}.step" for name in facts.updated]
        yield Event(ENDS, (), ", ".join([*clips, *steps]), component="step")


def _passes(facts: StepFacts) -> list[str]:
    """What each forward/backward pass of the step consists of, in words."""
    marks: dict[int, list[tuple[int, str]]] = {}
    for role, name in _NAMES.items():
        rows = _rows(facts, role)
        batches = facts.columns.microbatch[rows]
        for batch in sorted(set(batches.tolist())):
            first = int(rows[batches == batch][0])
            marks.setdefault(batch, []).append((first, name))
    return [", ".join(name for _, name in sorted(marks[batch])) for batch in sorted(marks)]


def _rows(facts: StepFacts, role: Role) -> Ids:
    rows = facts.trained(facts.rows(role))
    if role == Role.GRADIENT:
        rows = rows[facts.phase(rows) == Phase.BACKWARD]
    return rows


TEMPLATES = (PASSES, ENDS, COUNT, WAITING)
