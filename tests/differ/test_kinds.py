"""Kinds of differences that are about order and chance."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from synthetic import Run, Step

from traceparity.differ.policy import Align, Policy
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Flag

GENERATORS = Policy(Align(rng="compare"))


def with_calls(values: list[float]) -> Callable[[list[Step]], None]:
    """Let a module be called once for each value, in step 1."""

    def change(steps: list[Step]) -> None:
        at = steps[1].find("forward:body.0:output[0]")
        row = steps[1].rows[at]
        steps[1].rows[at : at + 1] = [
            replace(row, call=call, value=np.full((9, 3), value, np.float32))
            for call, value in enumerate(values)
        ]

    return change


def test_samples_in_another_order_are_told_from_other_samples(bench):
    def reorder(steps: list[Step]) -> None:
        ids = steps[2].rows[steps[2].find("data:loader[0]:sample_ids")].value
        steps[2].change("data:loader[0]:sample_ids", ids[::-1])

    def exchange(steps: list[Step]) -> None:
        steps[2].change("data:loader[0]:sample_ids", [1, 2, 3, 4])

    assert bench.changed(reorder).first.kind == "order"
    assert bench.changed(exchange).first.kind == "sample_id"


def test_a_batch_in_another_order_has_that_kind_too(bench):
    def reorder(steps: list[Step]) -> None:
        for site in ("data:loader[0]:batch[image]", "data:loader[0]:sample_ids"):
            value = steps[2].rows[steps[2].find(site)].value
            steps[2].change(site, value[::-1])

    first = bench.changed(reorder).first

    assert (first.field, first.kind) == ("batch[image]", "order")


def test_calls_in_another_order_are_told_from_other_values(bench):
    reference, swapped, other = (Run().steps(3) for _ in range(3))
    with_calls([1.0, 2.0])(reference)
    with_calls([2.0, 1.0])(swapped)
    with_calls([2.0, 3.0])(other)

    first = bench.diff(reference, swapped).first

    assert (first.step, first.phase, first.component, first.kind) == (
        1,
        "forward",
        "body.0",
        "order",
    )
    assert bench.diff(reference, other).first.kind == "value"


def other_generator(step: int) -> Callable[[list[Step]], None]:
    return lambda steps: steps[step].change("state:rng.torch:digest", "other")


def test_random_state_decides_where_the_policy_says_so(bench):
    assert bench.changed(other_generator(2)).outcome is Outcome.PASS

    first = bench.changed(other_generator(2), GENERATORS).first

    assert (first.step, first.phase, first.component) == (2, "state", "rng.torch")
    assert first.kind == "rng"


def test_equal_runs_pass_with_their_generators_compared(bench):
    result = bench.changed(lambda steps: None, GENERATORS)

    assert result.outcome is Outcome.PASS
    assert result.compared.skipped_equal == 0


def test_random_state_comes_after_all_that_a_step_starts_from(bench):
    def change(steps: list[Step]) -> None:
        other_generator(0)(steps)
        steps[0].change("state:head.weight:value", np.zeros((9, 3), np.float32))

    assert bench.changed(change, GENERATORS).first.component == "head.weight"


def test_a_generator_that_one_run_alone_has_decides_nothing(bench):
    def change(steps: list[Step]) -> None:
        for step in steps:
            step.remove("state:rng.python:digest")

    assert bench.changed(change, GENERATORS).outcome is Outcome.PASS


@pytest.mark.parametrize("policy", [Policy(Align(kind="resume", step_offset=3)), None])
def test_random_state_is_compared_at_the_seam_of_a_resume(bench, policy):
    align = Align(kind="resume", step_offset=3, rng="compare" if policy is None else "context")
    target = Run().steps(6, 3)
    other_generator(0)(target)

    result = bench.diff(Run().steps(6), target, Policy(align))

    assert result.outcome is (Outcome.PASS if policy else Outcome.FAIL)
    if policy is None:
        assert (result.first.step, result.first.kind) == (3, "rng")


def test_observations_are_counted_alike_whether_a_step_is_read_or_skipped(bench):
    """Context is part of the count: the index does not tell it apart."""
    by_index = bench.changed(lambda steps: None)
    by_rows = bench.changed(lambda steps: None, Policy(Align(device="compare")))

    assert by_index.compared.skipped_equal == by_index.compared.observations
    assert by_rows.compared.skipped_equal == 0
    assert by_rows.compared.observations == by_index.compared.observations


def test_context_alone_is_no_comparison(bench):
    def only_context(steps: list[Step]) -> None:
        for step in steps:
            step.rows = [row for row in step.rows if row.flags & Flag.CONTEXT]

    steps = Run().steps(2)
    only_context(steps)

    result = bench.diff(steps, steps, Policy(Align(device="compare")))

    assert result.outcome is Outcome.ABSTAIN
    assert result.compared.observations == 0
