"""Comparing two observations under a rule, and measuring how far apart they are."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import sketch

from traceparity.differ.compare import Relation, compare
from traceparity.differ.divergence import kind_of
from traceparity.differ.metrics import measure, sketch_distance
from traceparity.differ.observation import Observation
from traceparity.differ.policy import Rule
from traceparity.tracefmt.records import Flag, Kind

EQUAL, DIFFERENT, UNDECIDED = Relation.EQUAL, Relation.DIFFERENT, Relation.UNDECIDED


def tensor(array, *, values: bool = True, sketched: bool = True) -> Observation:
    array = np.asarray(array)
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    finite = np.isfinite(wide)
    inexact = array.dtype.kind not in "iub"
    return Observation(
        kind=Kind.TENSOR,
        dtype=array.dtype.name,
        shape=array.shape,
        device="cpu",
        digest=repr((array.dtype.name, array.shape, array.tobytes())).encode(),
        minimum=float(np.min(wide.real, initial=0)),
        maximum=float(np.max(wide.real, initial=0)),
        norm=float(np.linalg.norm(wide)),
        nonfinite=int((~finite).sum()),
        flags=Flag(0),
        sketch=np.frombuffer(sketch(wide.real), np.float32) if sketched and inexact else None,
        data=array.tobytes() if values else None,
        plain=None,
    )


def scalar(plain) -> Observation:
    return Observation(
        Kind.SCALAR, "", (), "", repr(plain).encode(), math.nan, math.nan, math.nan, 0, Flag(0),
        None, None, plain,
    )  # fmt: skip


def relation(rule: Rule, left: Observation, right: Observation) -> Relation:
    return compare(rule, left, right).relation


CLOSE = Rule(rtol=1e-3, atol=1e-6)


def test_equal_bits_satisfy_every_rule():
    nan = tensor(np.array([np.nan, 1.0], np.float32))

    for rule in (Rule(), CLOSE, Rule(rel_l2=0.0), Rule(ulp=0)):
        assert relation(rule, nan, nan) is EQUAL


def test_exact_takes_the_bits_at_their_word():
    assert relation(Rule(), tensor(np.float32([0.0])), tensor(np.float32([-0.0]))) is DIFFERENT


@pytest.mark.parametrize(
    "dtype",
    [np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2],
)
def test_tolerance_is_elementwise_with_the_target_as_measure(dtype):
    left = tensor(np.array([1.0, -2.0, 0.0]).astype(dtype))
    right = tensor(np.array([1.25, -2.0, 0.0]).astype(dtype))

    assert relation(Rule(rtol=0.2), left, right) is EQUAL
    assert relation(Rule(rtol=0.19), left, right) is DIFFERENT
    # 0.25 is 20 % of 1.25, the target, and 25 % of 1, the reference.
    assert relation(Rule(rtol=0.2), right, left) is DIFFERENT


def test_both_zeros_are_close_and_infinities_only_to_themselves():
    inf = np.float32(np.inf)

    assert relation(CLOSE, tensor(np.float32([0.0])), tensor(np.float32([-0.0]))) is EQUAL
    assert relation(CLOSE, tensor(np.float32([inf, 1])), tensor(np.float32([inf, 1.0001]))) is EQUAL
    assert relation(CLOSE, tensor([inf]), tensor([-inf])) is DIFFERENT
    assert relation(CLOSE, tensor([inf]), tensor(np.float32([3e38]))) is DIFFERENT


def test_a_nan_is_equal_to_another_nan_only_where_declared():
    left = tensor(np.float32([np.nan, 1]))
    right = tensor(np.float32([np.nan, 1.0001]))

    assert relation(CLOSE, left, right) is DIFFERENT
    assert relation(Rule(rtol=1e-3, equal_nan=True), left, right) is EQUAL


def test_integers_and_booleans_are_exact_under_any_tolerance():
    loose = Rule(rtol=10.0, atol=10.0, rel_l2=10.0)

    assert relation(loose, tensor(np.array([100])), tensor(np.array([101]))) is DIFFERENT
    assert relation(loose, tensor(np.array([True])), tensor(np.array([False]))) is DIFFERENT
    assert relation(loose, scalar(3), scalar(4)) is DIFFERENT


def test_plain_floats_follow_the_same_tolerance_as_tensors():
    assert relation(CLOSE, scalar(0.1), scalar(0.10001)) is EQUAL
    assert relation(CLOSE, scalar([0.9, 0.99]), scalar([0.9, 0.9901])) is EQUAL
    assert relation(CLOSE, scalar(0.1), scalar(0.2)) is DIFFERENT
    assert relation(CLOSE, scalar(1.0), scalar(1)) is DIFFERENT
    assert relation(CLOSE, scalar("a"), scalar("b")) is DIFFERENT


def test_another_dtype_or_shape_is_different_under_any_tolerance():
    left = tensor(np.ones(4, np.float32))

    assert relation(Rule(rtol=9.0), left, tensor(np.ones(4))) is DIFFERENT
    assert relation(Rule(rtol=9.0), left, tensor(np.ones((2, 2), np.float32))) is DIFFERENT


def test_ulp_counts_representable_numbers_across_zero():
    tiny = np.nextafter(np.float32(0), np.float32(1))
    left, right = tensor(np.float32([-tiny, 1])), tensor(np.float32([tiny, 1]))

    assert relation(Rule(ulp=2), left, right) is EQUAL
    assert relation(Rule(ulp=1), left, right) is DIFFERENT
    assert measure(left, right).ulp == 2


def test_elementwise_rules_need_values_and_abstain_without():
    left = tensor(np.ones(200, np.float32), values=False)
    right = tensor(np.full(200, 1.000001, np.float32), values=False)

    assert relation(CLOSE, left, right) is UNDECIDED
    assert compare(CLOSE, left, right).needs == "values"


def test_a_sketch_refutes_an_elementwise_rule_that_is_far_from_satisfied():
    left = tensor(np.ones(200, np.float32), values=False)
    right = tensor(np.full(200, 2.0, np.float32), values=False)

    assert relation(CLOSE, left, right) is DIFFERENT


@pytest.mark.parametrize(
    ("change", "expected"), [(1e-6, EQUAL), (1e-1, DIFFERENT), (1.0e-3, UNDECIDED)]
)
def test_relative_distance_is_judged_from_sketches_outside_of_their_uncertainty(change, expected):
    rng = np.random.default_rng(3)
    base = rng.standard_normal(2000).astype(np.float32)
    noise = rng.standard_normal(2000).astype(np.float32)
    left = tensor(base, values=False)
    right = tensor(base + np.float32(change) * noise, values=False)

    assert relation(Rule(rel_l2=1e-3), left, right) is expected


def test_values_decide_where_a_sketch_could_not():
    base = np.random.default_rng(3).standard_normal(2000).astype(np.float32)

    assert relation(Rule(rel_l2=1e-3), tensor(base), tensor(base * np.float32(1.0009))) is EQUAL
    assert relation(Rule(rel_l2=1e-3), tensor(base), tensor(base * np.float32(1.0011))) is DIFFERENT


def test_digests_of_different_kinds_prove_nothing():
    left, right = tensor(np.ones(200, np.float32), values=False), tensor(np.ones(200, np.float32))

    assert compare(Rule(), left, right, same_digest_kind=False).relation is UNDECIDED
    far = tensor(np.zeros(200, np.float32), values=False)
    assert compare(Rule(), left, far, same_digest_kind=False).relation is DIFFERENT


def test_a_result_that_became_nonfinite_is_different_without_values():
    left = tensor(np.ones(200, np.float32), values=False)
    right = tensor(np.full(200, np.inf, np.float32), values=False, sketched=False)

    assert relation(CLOSE, left, right) is DIFFERENT
    assert kind_of("head", "output[0]", left, right) == "nonfinite"


def test_metrics_of_values_are_exact():
    left, right = np.zeros((2, 3), np.float32) + 2, np.zeros((2, 3), np.float32) + 2
    right[1, 2] = 3

    metrics = measure(tensor(left), tensor(right))

    assert (metrics.max_abs, metrics.max_rel) == (1.0, 0.5)
    assert (metrics.unequal, metrics.elements, metrics.first_index) == (1, 6, (1, 2))
    assert metrics.rel_l2 == pytest.approx(1 / math.sqrt(24))
    assert not metrics.estimated


def test_an_infinity_against_a_number_is_infinitely_far():
    metrics = measure(tensor(np.float32([1, np.inf])), tensor(np.float32([1, 5])))

    assert metrics.max_abs == math.inf
    assert metrics.unequal == 1


def test_empty_tensors_have_no_distance():
    metrics = measure(tensor(np.ones((0, 3), np.float32)), tensor(np.ones((0, 3), np.float32)))

    assert metrics.unequal == 0


def test_metrics_of_scalars_and_of_absent_values():
    assert measure(scalar(0.5), scalar(0.25)).max_rel == 0.5
    assert measure(scalar("a"), scalar("b")).max_abs is None
    assert measure(None, scalar(1)).rel_l2 is None


@settings(derandomize=True)
@given(
    st.integers(1, 3000),
    st.floats(-6, 6),
    st.sampled_from(["dense", "one", "row", "cancelling"]),
    st.integers(0, 2**32),
)
def test_the_true_distance_lies_within_the_bounds_of_a_sketch(size, scale, shape, seed):
    rng = np.random.default_rng(seed)
    base = rng.standard_normal(size).astype(np.float32)
    difference = np.zeros(size, np.float32)
    if shape == "one":
        difference[rng.integers(size)] = 1
    else:
        stop = min(61, size) if shape == "row" else size
        difference[:stop] = rng.standard_normal(stop)
    if shape == "cancelling":
        difference[1::2] = -difference[: len(difference[1::2])]
    other = base + np.float32(10.0**scale) * difference

    found = sketch_distance(tensor(base), tensor(other))

    true = float(np.linalg.norm(other.astype(np.float64) - base.astype(np.float64)))
    assert found is not None
    assert found.lower <= true <= found.upper
