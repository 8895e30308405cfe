"""G, the gradient cycle: empty before backward, filled by it, untouched until the update."""

from collections.abc import Iterator

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.state import Ids
from traceparity.invariants.subjects import BOOLS, KIND, Subjects
from traceparity.invariants.tables import Gradient
from traceparity.invariants.template import Event, Template
from traceparity.tracefmt.records import Phase

BEFORE = Template(
    id="gradient.before",
    phase=Phase.BACKWARD,
    noun="gradients when a backward pass begins",
    says={
        "empty": "hold nothing",
        "kept": "hold those of the pass before, to add to them",
    },
    fields=("pass_of_update",),
    scope=("pass_of_update",),
    support=1,
    needs=(Phase.BACKWARD,),
    hint="zero_grad() between the update and the next backward pass",
    shows="grad",
)
PRESENT = Template(
    id="gradient.present",
    phase=Phase.GRADIENT,
    noun="parameters at an update",
    says={True: "have a gradient", False: "have no gradient"},
    fields=("requires_grad", *KIND),
    scope=("requires_grad",),
    implied_by={"gradient.nonzero": True},
    needs=(Phase.STATE, Phase.GRADIENT),
    hint="no backward pass reached it: look for detach(), no_grad(), or a layer that is not used",
    shows="grad",
)
NONZERO = Template(
    id="gradient.nonzero",
    phase=Phase.GRADIENT,
    noun="parameters at an update",
    says={True: "have a gradient that is not zero", False: "have no gradient, or zeros"},
    fields=("requires_grad", *KIND),
    scope=("requires_grad",),
    proposed=(True,),
    needs=(Phase.STATE, Phase.GRADIENT),
    hint="the loss does not depend on it: look for detach(), an early zero_grad(), dead units",
    shows="grad",
)
UNTOUCHED = Template(
    id="gradient.untouched",
    phase=Phase.GRADIENT,
    noun="gradients between backward and update",
    says={True: "stay as they are", False: "are changed"},
    fields=("ranks", "scaled", "clipping"),
    scope=("ranks", "scaled", "clipping"),
    needs=(Phase.BACKWARD, Phase.GRADIENT),
    hint="what runs between backward() and step(): clipping, reduction, unscaling",
    shows="grad",
)

_BOTH = 2
_CLOSE = 1e-4
"""Clipping divides by the norm and a little more, so that a norm at the limit may be either."""


class Observer:
    """The life of gradients."""

    def __init__(self) -> None:
        self._subjects = Subjects()

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        seen: set[int] = set()
        for left in facts.left_gradients:
            first = left.microbatch not in seen and left.microbatch == 0
            seen.add(left.microbatch)
            if left.unknown:
                continue
            yield Event(
                BEFORE,
                ("first" if first else "later",),
                "kept" if left.kept else "empty",
                component=left.first_kept or "gradients",
                row=left.row,
                seen=f"{left.kept} parameters still have one" if left.kept else "",
            )
        if facts.updated and not facts.skipped:
            yield from self._received(facts)

    def _received(self, facts: StepFacts) -> Iterator[Event]:
        received = facts.received
        known = received.kind != Gradient.UNKNOWN
        known &= facts.state.is_parameter[received.tensor]
        tensors, kinds, rows = received.tensor[known], received.kind[known], received.row[known]
        wanted = [(facts.state.requires_grad[tensors].astype(np.int64), BOOLS)]
        present = (kinds != Gradient.NONE).astype(np.int64)
        nonzero = (kinds == Gradient.NONZERO).astype(np.int64)
        events = self._subjects.events
        yield from events(facts, PRESENT, tensors, (present, BOOLS), wanted, rows)
        yield from events(facts, NONZERO, tensors, (nonzero, BOOLS), wanted, rows)
        yield from self._touched(facts, tensors[nonzero == 1])

    def _touched(self, facts: StepFacts, nonzero: Ids) -> Iterator[Event]:
        """Whether the gradients of all parameters are those that backward left."""
        left, got = facts.gradients, facts.received
        digests = np.zeros((len(facts.names.tensors), 2), np.uint64)
        # Of several passes the last one tells what is there when the optimizer comes.
        digests[left.tensor] = left.digest
        known = np.zeros(len(facts.names.tensors), np.int8)
        known[left.tensor] = 1
        known[nonzero] += 1
        both = known[got.tensor] == _BOTH
        if not both.any():
            return
        same = (digests[got.tensor[both]] == got.digest[both]).all(axis=1)
        world = "several" if facts.source.header.world_size > 1 else "one"
        at, clipping = int(np.argmin(same)), _clipping(facts)
        if not clipping:
            return
        scaled = any(name.startswith("scaler") for name in facts.state.counters)
        yield Event(
            UNTOUCHED,
            (world, scaled, clipping),
            bool(same.all()),
            component=facts.names.tensors[int(got.tensor[both][at])],
            row=int(got.row[both][at]),
        )


def _clipping(facts: StepFacts) -> str:
    """What clipping there was; empty where the norm is too close to the limit to tell."""
    if not facts.clips:
        return "none"
    if len(facts.clips) > 1 or facts.clips[0].function != "clip_grad_norm_":
        return "of values, or several"
    clip = facts.clips[0]
    if abs(clip.total_norm - clip.limit) <= _CLOSE * clip.limit:
        return ""
    return "of a norm above the limit" if clip.total_norm > clip.limit else "of a norm below"


TEMPLATES = (BEFORE, PRESENT, NONZERO, UNTOUCHED)
