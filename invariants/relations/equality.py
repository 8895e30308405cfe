"""E, equality classes: tied parameters, and what is equal on all processes."""

from collections.abc import Iterator, Sequence

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.state import Ids, Mask
from traceparity.invariants.subjects import BOOLS, KIND, Subjects, pattern_of
from traceparity.invariants.template import Event, Template
from traceparity.tracefmt.records import Flag, Phase

TIED = Template(
    id="equality.tied",
    phase=Phase.STATE,
    noun="parameters",
    says={True: "are another name of a parameter that was named before", False: "are tied to none"},
    fields=("path",),
    each=("path",),
    proposed=(True,),
    support=1,
    needs=(Phase.STATE,),
    hint="the parameters were tied, and are two tensors now: look for a copy, or a new Parameter",
    shows="shared_with",
)
REPLICAS = Template(
    id="equality.replicas",
    phase=Phase.OPTIMIZER,
    noun="parameters and buffers after an update",
    says={True: "are equal on all ranks", False: "differ between ranks"},
    fields=("parameter", *KIND),
    scope=("parameter", "class"),
    needs=(Phase.OPTIMIZER, Phase.STATE),
    hint="the replicas drift apart: look at what only some ranks do, and at the wrapper",
    shows="value",
)
REDUCED = Template(
    id="equality.reduced",
    phase=Phase.GRADIENT,
    noun="gradients at an update",
    says={True: "are equal on all ranks", False: "differ between ranks"},
    fields=KIND,
    scope=("class",),
    needs=(Phase.GRADIENT,),
    hint="gradients are not synchronised: look for a bypassed wrapper, no_sync(), or clipping",
    shows="grad",
)


class Observer:
    """Parameters that are one tensor with several names."""

    def __init__(self) -> None:
        self._told = -1

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        # A name that gets a value of its own is news too.
        told = len(facts.names.tensors) + int(facts.state.known.sum())
        if told == self._told and not len(facts.rows(Role.SHARED_WITH)):
            return
        self._told = told
        shared = facts.state.shared_with
        for number, name in enumerate(facts.names.tensors):
            own = bool(facts.state.known[number])
            if name in shared or own:
                # A name with a value of its own is tied no longer.
                yield Event(TIED, (pattern_of(name),), not own, component=name)


class RankObserver:
    """What is equal on all processes."""

    def __init__(self) -> None:
        self._subjects = Subjects()

    def step(self, ranks: Sequence[StepFacts]) -> Iterator[Event]:
        """The events of a step of all processes."""
        first = ranks[0]
        if not all(facts.updated for facts in ranks):
            return
        # Parameters count by name: processes may have met them in another order.
        kept = np.array(
            [all(facts.names.tensor(name) is not None for facts in ranks)
             for name in first.names.tensors], bool,
        )  # fmt: skip
        tensors = np.flatnonzero(kept & first.state.known & ~_sharded(first))
        same = np.ones(len(tensors), bool)
        for facts in ranks[1:]:
            there = _there(first, facts, tensors)
            same &= (first.state.digest[tensors] == facts.state.digest[there]).all(axis=1)
        parameter = first.state.is_parameter[tensors].astype(np.int64)
        yield from self._subjects.events(
            first, REPLICAS, tensors, (same.astype(np.int64), BOOLS), [(parameter, BOOLS)]
        )
        yield from self._gradients(first, ranks)

    def _gradients(self, first: StepFacts, ranks: Sequence[StepFacts]) -> Iterator[Event]:
        received = first.received
        tensors, same = received.tensor, np.ones(len(received.tensor), bool)
        whole = ~_sharded(first)[tensors]
        for facts in ranks[1:]:
            digests = np.zeros((len(facts.names.tensors), 2), np.uint64)
            digests[facts.received.tensor] = facts.received.digest
            there = _there(first, facts, tensors)
            same &= (received.digest == digests[there]).all(axis=1)
            whole &= there >= 0
        yield from self._subjects.events(
            first, REDUCED, tensors[whole], (same[whole].astype(np.int64), BOOLS), (),
            received.row[whole],
        )  # fmt: skip


def _there(first: StepFacts, other: StepFacts, tensors: Ids) -> Ids:
    """Numbers of the tensors of one process in another one; -1 where it has none."""
    if first.names.tensors == other.names.tensors:
        return tensors
    found = (other.names.tensor(first.names.tensors[number]) for number in tensors.tolist())
    return np.array([-1 if each is None else each for each in found], np.int64)


def _sharded(facts: StepFacts) -> Mask:
    mask = np.zeros(len(facts.names.tensors), bool)
    rows = facts.values.row
    shards = (facts.columns.flags[rows] & int(Flag.SHARDED)) != 0
    mask[facts.values.tensor[shards]] = True
    return mask


TEMPLATES = (TIED, REPLICAS, REDUCED)
