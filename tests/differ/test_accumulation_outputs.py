"""Scalar outputs under accumulation: compared where they are the same, else named."""

from collections.abc import Callable

import numpy as np
import pytest
from synthetic import Seen, Step
from windows import run

from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Phase

POLICY = Policy(Align(kind="accumulation", microbatches=(1, 2)), (Rule("*", rtol=1e-5, atol=1e-6),))


def with_outputs(cuts: list[int], value: Callable[[int], object]) -> list[Step]:
    """Two updates in which a module returns something in each micro-batch."""
    steps = run(cuts, cuts)
    for step in steps:
        for batch in range(len(cuts)):
            row = Seen(Phase.FORWARD, "criterion", "output[0]", value(batch), microbatch=batch)
            step.rows.insert(step.find("loss:loss:value"), row)
    return steps


@pytest.mark.parametrize(
    "value",
    [lambda batch: 0.5 + batch, lambda batch: np.array(np.float32(0.5 + batch))],
    ids=["number", "tensor"],
)
def test_scalar_outputs_that_differ_from_one_micro_batch_to_the_next_are_named(bench, value):
    result = bench.diff(
        with_outputs([8], value), with_outputs([4, 4], value), POLICY, capture="values"
    )

    assert result.outcome is Outcome.PASS, result.reason
    assert sum("forward:criterion:output[0]" in note for note in result.notes) == 1


@pytest.mark.parametrize("value", [0.5, np.array(np.float32(0.5))], ids=["number", "tensor"])
def test_scalar_outputs_that_are_the_same_in_every_micro_batch_are_compared(bench, value):
    other = np.asarray(value + 1, np.float32) if isinstance(value, np.ndarray) else value + 1
    reference = with_outputs([8], lambda _: value)

    same = bench.diff(reference, with_outputs([4, 4], lambda _: value), POLICY, capture="values")
    changed = bench.diff(reference, with_outputs([4, 4], lambda _: other), POLICY, capture="values")

    assert same.outcome is Outcome.PASS
    assert not any("criterion" in note for note in same.notes)
    assert (changed.outcome, changed.first.component) == (Outcome.FAIL, "criterion")
