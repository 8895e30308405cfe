"""Each reason for which a hand-written equivalence check tells two values apart has its like."""

import math

import numpy as np
import pytest
from synthetic import Run, Step

from traceparity.differ.compare import Relation, compare
from traceparity.differ.observation import Observation
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Flag, Kind, Phase

NAN = math.nan


def plain(value: object) -> Observation:
    digest = repr((type(value), value)).encode()
    return Observation(
        Kind.SCALAR, "", (), "", digest, NAN, NAN, NAN, 0, Flag(0), None, None, value
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (True, 1),
        (1, 1.0),
        (0, "0"),
        (None, 0),
        (None, "None"),
        (1.0, "1.0"),
        ([1], [1.0]),
        ([True], [1]),
        ({"a": 1}, {"a": 1.0}),
    ],
)
@pytest.mark.parametrize("rule", [Rule(), Rule(rtol=10.0), Rule(atol=10.0, symmetric=True)])
def test_values_of_other_types_are_different(rule, left, right):
    assert compare(rule, plain(left), plain(right)).relation is Relation.DIFFERENT


def test_sequences_of_other_lengths_are_different():
    assert compare(Rule(rtol=1.0), plain([1.0]), plain([1.0, 1.0])).relation is Relation.DIFFERENT


def test_floats_are_equal_by_their_eight_bytes():
    assert compare(Rule(), plain(0.0), plain(-0.0)).relation is Relation.DIFFERENT
    assert compare(Rule(), plain([0.0]), plain([-0.0])).relation is Relation.DIFFERENT
    assert compare(Rule(atol=0.0), plain(0.0), plain(-0.0)).relation is Relation.EQUAL
    assert compare(Rule(), plain(0.1), plain(0.1)).relation is Relation.EQUAL
    assert compare(Rule(), plain(0.1), plain(math.nextafter(0.1, 1))).relation is Relation.DIFFERENT


def test_what_the_target_lacks_is_missing_and_what_it_adds_is_extra(bench):
    lacks = bench.changed(lambda steps: steps[1].remove("gradient:head.weight:grad"))
    adds = bench.changed(
        lambda steps: steps[1].add(
            Phase.GRADIENT, "new.weight", "grad", np.ones((2, 2), np.float32)
        )
    )

    assert (lacks.first.kind, adds.first.kind) == ("missing", "extra")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros((3, 9), np.float32), "shape"),
        (np.zeros((9, 3), np.float64), "dtype"),
        (np.zeros((9, 3), np.float32), "value"),
        (np.full((9, 3), np.nan, np.float32), "nonfinite"),
    ],
)
def test_the_reason_is_the_first_of_shape_dtype_and_value(bench, value, kind):
    found = bench.changed(lambda steps: steps[1].change("gradient:head.weight:grad", value))

    assert found.first.kind == kind


def test_a_parameter_that_no_longer_requires_gradients_is_a_flag(bench):
    change = bench.changed(lambda steps: steps[0].change("state:head.weight:requires_grad", False))

    assert (change.first.field, change.first.kind) == ("requires_grad", "flag")


def test_the_size_of_a_difference_is_told_without_weakening_exact_comparison(bench):
    def one_bit(steps: list[Step]) -> None:
        at = steps[1].find("gradient:head.weight:grad")
        value = steps[1].rows[at].value.copy()
        value[4, 2] = np.nextafter(value[4, 2], np.float32(9))
        steps[1].change("gradient:head.weight:grad", value)

    result = bench.changed(one_bit, capture="values")

    metrics = result.first.metrics
    assert result.outcome is Outcome.FAIL
    assert (metrics.unequal, metrics.first_index, metrics.ulp) == (1, (4, 2), 1)
    assert 0 < metrics.max_abs < 1e-6
    assert metrics.cosine == pytest.approx(1)


def test_two_values_at_one_site_are_told_apart_by_their_call(bench):
    """As the keys 0 and "0" of a dictionary, which have one name."""

    def twice(value: float) -> list[Step]:
        steps = Run().steps(2)
        for call, number in enumerate((1.0, value)):
            steps[1].add(Phase.FORWARD, "body.0", "output[key]", number, call=call)
        return steps

    same, other = bench.diff(twice(2.0), twice(2.0)), bench.diff(twice(2.0), twice(3.0))

    assert same.outcome is Outcome.PASS
    assert (other.first.field, other.first.call) == ("output[key]", 1)


def test_an_infinite_difference_is_infinite(bench):
    def overflow(steps: list[Step]) -> None:
        at = steps[1].find("gradient:head.weight:grad")
        value = steps[1].rows[at].value.copy()
        value[0, 0] = np.inf
        steps[1].change("gradient:head.weight:grad", value)

    metrics = bench.changed(overflow, capture="values").first.metrics

    assert (metrics.max_abs, metrics.infinities, metrics.unequal) == (math.inf, (0, 1), 1)


def test_devices_are_compared_where_declared_alone(bench):
    """A run on a GPU may equal one on a CPU."""
    assert bench.changed(lambda steps: None).outcome is Outcome.PASS
    compared = bench.changed(lambda steps: None, Policy(Align(device="compare")))
    assert compared.policy.align.device == "compare"
