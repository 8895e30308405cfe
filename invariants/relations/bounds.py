"""B, bounds: finite values, gradients within the clipping limit, envelopes of loss and norms."""

import math
from collections.abc import Iterator

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.lengths import Lengths
from traceparity.invariants.tables import Gradient
from traceparity.invariants.template import Event, Learns, Template
from traceparity.tracefmt.records import Phase

_ABOUT = 0.02
"""Norms of half precision are not added up alike."""
_SLACK = 1.001
"""Clipping divides by the norm plus a small number, in single precision."""

FINITE_LOSS = Template(
    id="bounds.finite_loss",
    phase=Phase.LOSS,
    noun="losses",
    says={True: "are finite", False: "are infinite or NaN"},
    proposed=(True,),
    needs=(Phase.LOSS,),
    hint="the step before: rates, inputs, logarithms and divisions",
    shows="value",
)
FINITE_GRADIENTS = Template(
    id="bounds.finite_gradients",
    phase=Phase.GRADIENT,
    noun="gradients at an update",
    says={True: "are finite", False: "hold infinities or NaNs"},
    fields=("scaled",),
    scope=("scaled",),
    proposed=(True,),
    needs=(Phase.GRADIENT,),
    hint="the loss and at clipping, which spreads a NaN to all gradients",
    shows="grad",
)
CLIPPED = Template(
    id="bounds.clipped",
    phase=Phase.GRADIENT,
    noun="gradients after clipping",
    says={True: "have a norm within the limit", False: "have a larger norm than the limit"},
    proposed=(True,),
    needs=(Phase.GRADIENT,),
    hint="clipping comes before the gradients are complete, or leaves some out",
    shows="grad",
)
REACHED = Template(
    id="bounds.reached",
    phase=Phase.GRADIENT,
    noun="gradients after clipping",
    says={
        True: "have the norm that clipping gives them",
        False: "have another norm than clipping gives them",
    },
    fields=("scaled",),
    scope=("scaled",),
    proposed=(True,),
    needs=(Phase.GRADIENT,),
    hint="the order of clipping, unscaling and reduction, and at what is clipped",
    shows="grad",
)
LIMIT = Template(
    id="bounds.limit",
    phase=Phase.GRADIENT,
    noun="limits of clipping",
    says="are {}",
    fields=("function",),
    each=("function",),
    most_outcomes=1,
    needs=(Phase.GRADIENT,),
    hint="the limit was changed",
    shows="max_norm",
)
LOSS = Template(
    id="bounds.loss",
    phase=Phase.LOSS,
    noun="losses",
    says="{}",
    learns=Learns.RANGE,
    needs=(Phase.LOSS,),
    hint="the loss is far from that of all references",
    shows="value",
)
NORM = Template(
    id="bounds.norm",
    phase=Phase.GRADIENT,
    noun="norms of all gradients at an update",
    says="{}",
    fields=("optimizer",),
    scope=("optimizer",),
    learns=Learns.RANGE,
    least=0.0,
    needs=(Phase.GRADIENT,),
    hint="the gradients are far larger than in all references",
    shows="grad",
)


LENGTH = Template(
    id="bounds.length",
    phase=Phase.FORWARD,
    noun="outputs of calls with a limit",
    says={True: "are within the limit", False: "are longer than the limit"},
    fields=("argument", "class"),
    scope=("argument", "class"),
    proposed=(True,),
    support=1,
    needs=(Phase.FORWARD,),
    hint="the limit is counted from another beginning, or not looked at",
    shows="output[0]",
)


class Observer:
    """Numbers and their limits."""

    def __init__(self) -> None:
        self._lengths = Lengths()

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        scaled = any(name.startswith("scaler") for name in facts.state.counters)
        # A loss that overflows when it is scaled costs one update, which is left out.
        for loss in () if facts.skipped else facts.losses:
            yield Event(FINITE_LOSS, (), not loss.nonfinite, component="loss", row=loss.row)
            if math.isfinite(loss.value) and not scaled:
                seen = f"{loss.value:g}"
                yield Event(LOSS, (), loss.value, component="loss", row=loss.row, seen=seen)
        for clip in facts.clips:
            if math.isfinite(clip.limit):
                context = (clip.function,)
                yield Event(LIMIT, context, clip.limit, component=clip.function, row=clip.row)
        for call in self._lengths.step(facts):
            named = call.argument, facts.state.classes.get(call.module, "")
            seen = f"a length of {call.length}, and {call.argument} is {call.limit}"
            within = call.length <= call.limit
            yield Event(LENGTH, named, within, component=call.module, row=call.row, seen=seen)
        if facts.updated and not facts.skipped:
            yield from self._gradients(facts)

    def _gradients(self, facts: StepFacts) -> Iterator[Event]:
        received = facts.received
        if not len(received.row):
            return
        scaled = any(name.startswith("scaler") for name in facts.state.counters)
        bad = np.flatnonzero(received.nonfinite)
        at = int(bad[0]) if len(bad) else 0
        name = facts.names.tensors[int(received.tensor[at])]
        row = int(received.row[at])
        yield Event(FINITE_GRADIENTS, (scaled,), not len(bad), component=name, row=row)
        if len(bad) or (received.kind == Gradient.UNKNOWN).any() or len(facts.updated) > 1:
            return
        norm = float(np.sqrt(np.nansum(np.square(received.norm, dtype=np.float64))))
        optimizer = facts.state.classes.get(facts.updated[0], "")
        yield Event(NORM, (optimizer,), norm, component="gradients", seen=f"{norm:g}")
        if len(facts.clips) == 1 and facts.clips[0].function == "clip_grad_norm_":
            clip = facts.clips[0]
            within = norm <= clip.limit * _SLACK
            seen = f"a norm of {norm:g} after clipping to {clip.limit:g}"
            yield Event(CLIPPED, (), within, component=clip.function, row=clip.row, seen=seen)
            given = min(clip.total_norm, clip.limit)
            if math.isfinite(given) and given > 0:
                told = abs(norm - given) <= _ABOUT * given
                seen = f"a norm of {norm:g}, of {clip.total_norm:g} clipped to {clip.limit:g}"
                yield Event(
                    REACHED, (scaled,), told, component=clip.function, row=clip.row, seen=seen
                )


TEMPLATES = (FINITE_LOSS, FINITE_GRADIENTS, CLIPPED, REACHED, LIMIT, LOSS, NORM, LENGTH)
