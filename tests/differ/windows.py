"""Made-up updates of eight samples, cut into micro-batches: what each holds follows from them."""

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from synthetic import SNAPSHOT, STATE, Step

from traceparity.tracefmt.records import Flag, Kind, Phase


def rows_of(*key: Any, samples: Sequence[int], width: int = 5) -> np.ndarray:
    """A row for each sample, which follows from the sample alone."""
    made = [np.random.default_rng([*map(ord, repr(key)), each]).random(width) for each in samples]
    return np.array(made, np.float32).reshape(len(samples), width)


def update(
    number: int,
    cuts: Sequence[int],
    *,
    ids: bool = True,
    digests: bool = True,
    scale: float | None = None,
) -> Step:
    """An update of the samples 8n to 8n+8, cut into micro-batches of these sizes."""
    step = Step()
    if not number:
        weight = rows_of("weight", samples=[0])
        step.add(Phase.STATE, "layer.weight", "value", weight, flags=SNAPSHOT)
    if scale is not None:
        step.add(Phase.STATE, "scaler.scale", "value", scale, flags=STATE)
    borders = np.cumsum([8 * number, *cuts]).tolist()
    gradient = np.zeros(5, np.float32)
    for batch, (begin, end) in enumerate(pairwise(borders)):
        samples = list(range(begin, end))

        add = functools.partial(step.add, microbatch=batch)
        image = rows_of("image", samples=samples)
        add(Phase.DATA, "loader[0]", "batch[image]", image)
        add(Phase.DATA, "loader[0]", "batch[label]", np.array(samples))
        known = samples if ids else None
        add(Phase.DATA, "loader[0]", "sample_ids", known, kind=Kind.SAMPLE_IDS)
        if digests:
            each = [f"digest{name}" for name in samples]
            context = {"kind": Kind.SAMPLE_IDS, "flags": Flag.CONTEXT}
            add(Phase.DATA, "loader[0]", "sample_digests", each, **context)
        add(Phase.DATA, "loader[0]", "worker", batch, flags=Flag.CONTEXT)
        add(Phase.FORWARD, "", "input[0]", image)
        add(Phase.FORWARD, "layer", "input[0]", image)
        add(Phase.FORWARD, "layer", "output[0]", image * 2)
        add(Phase.FORWARD, "layer.calls", "value", np.array(float(number)), flags=STATE)
        add(Phase.FORWARD, "", "output[0]", image * 2)
        loss = np.float32(image.sum() * (scale or 1.0))
        add(Phase.LOSS, "loss", "value", np.array(loss))
        add(Phase.BACKWARD, "layer", "grad_output[0]", image / 8)
        gradient = gradient + image.sum(0)
        add(Phase.BACKWARD, "layer.weight", "grad", gradient)
    step.add(Phase.GRADIENT, "layer.weight", "grad", gradient)
    after = rows_of("weight", samples=[number + 1])
    step.add(Phase.OPTIMIZER, "layer.weight", "value", after, flags=STATE)
    return step


def run(*cuts: Sequence[int], **options: Any) -> list[Step]:
    return [update(number, each, **options) for number, each in enumerate(cuts)]
