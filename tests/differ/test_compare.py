"""Comparing two observations under a rule, and measuring how far apart they are."""

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import SIGNS, sketch

from traceparity.differ.compare import Relation, compare
from traceparity.differ.divergence import kind_of
from traceparity.differ.metrics import measure
from traceparity.differ.observation import Observation
from traceparity.differ.policy import Rule
from traceparity.differ.sketch_distance import sketch_distance
from traceparity.tracefmt.records import Flag, Kind

EQUAL, DIFFERENT, UNDECIDED = Relation.EQUAL, Relation.DIFFERENT, Relation.UNDECIDED


def tensor(array, *, values: bool = True, sketched: bool = True) -> Observation:
    array = np.asarray(array)
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    finite = np.isfinite(wide)
    inexact = array.dtype.kind not in "iub"
    with np.errstate(all="ignore"):
        norm = float(np.linalg.norm(wide))
    return Observation(
        kind=Kind.TENSOR,
        dtype=array.dtype.name,
        shape=array.shape,
        device="cpu",
        digest=repr((array.dtype.name, array.shape, array.tobytes())).encode(),
        minimum=float(np.min(wide.real, initial=0)),
        maximum=float(np.max(wide.real, initial=0)),
        norm=norm,
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


def test_a_symmetric_tolerance_is_relative_to_the_larger_side():
    one, more = tensor(np.float64([1.0, 8])), tensor(np.float64([1.001001, 8]))
    rule = Rule(rtol=1e-3)

    assert [relation(rule, one, more), relation(rule, more, one)] == [EQUAL, DIFFERENT]
    symmetric = Rule(rtol=1e-3, symmetric=True)
    assert relation(symmetric, one, more) is relation(symmetric, more, one) is EQUAL


@pytest.mark.parametrize("values", [True, False])
def test_a_symmetric_distance_is_relative_to_the_larger_norm(values):
    small, large = tensor(np.ones(50), values=values), tensor(np.full(50, 4.0), values=values)
    rule = Rule(rel_l2=1.5)

    assert [relation(rule, large, small), relation(rule, small, large)] == [EQUAL, DIFFERENT]
    symmetric = Rule(rel_l2=1.5, symmetric=True)
    assert relation(symmetric, large, small) is relation(symmetric, small, large) is EQUAL


def test_infinities_do_not_hide_in_an_infinite_norm():
    """Nor does an infinity that both have hide a difference of the numbers beside it."""
    rule = Rule(rel_l2=0.1)
    one = tensor(np.float64([np.inf, 1, 2]))

    assert relation(rule, one, tensor(np.float64([np.inf, 1, 2.01]))) is EQUAL
    assert relation(rule, one, tensor(np.float64([np.inf, 1, 3]))) is DIFFERENT
    assert relation(rule, one, tensor(np.float64([np.inf, np.inf, 2]))) is DIFFERENT
    assert relation(rule, one, tensor(np.float64([-np.inf, 1, 2]))) is DIFFERENT


def test_plain_numbers_follow_a_symmetric_rule_too():
    rule = Rule(rel_l2=0.5, symmetric=True)

    assert relation(rule, scalar(1.0), scalar(2.0)) is EQUAL
    assert relation(rule, scalar(2.0), scalar(1.0)) is EQUAL
    assert relation(rule, scalar(1.0), scalar(2.1)) is DIFFERENT


def test_metrics_count_nans_and_infinities_of_both_sides():
    left = np.float32([np.nan, np.inf, 1, 2, -np.inf])
    right = np.float32([np.nan, 5, np.nan, 2, -np.inf])

    metrics = measure(tensor(left), tensor(right))

    assert metrics.nans == (1, 2)
    assert metrics.infinities == (2, 1)
    assert (metrics.unequal, metrics.first_index) == (2, (1,))
    assert metrics.max_abs == math.inf


def test_nans_and_infinities_that_both_have_are_no_distance():
    left = np.float64([np.nan, np.inf, 3, 4])
    right = np.float64([np.nan, np.inf, 3, 4.5])

    metrics = measure(tensor(left), tensor(right))

    assert metrics.max_abs == 0.5
    assert metrics.rel_l2 == 0.1
    assert 0.99 < metrics.cosine < 1


def test_zeros_of_two_signs_are_unequal_bits_at_no_distance():
    metrics = measure(tensor(np.float32([0.0, 1])), tensor(np.float32([-0.0, 1])))

    assert (metrics.unequal, metrics.first_index, metrics.max_abs, metrics.ulp) == (1, (0,), 0.0, 0)


def test_another_payload_of_a_nan_is_unequal_bits_and_equal_where_declared():
    left = np.uint32([0x7FC00000, 0]).view(np.float32)
    right = np.uint32([0x7FC00001, 0]).view(np.float32)

    assert relation(Rule(), tensor(left), tensor(right)) is DIFFERENT
    assert relation(Rule(rtol=1.0), tensor(left), tensor(right)) is DIFFERENT
    assert relation(Rule(rtol=1.0, equal_nan=True), tensor(left), tensor(right)) is EQUAL
    assert measure(tensor(left), tensor(right)).unequal == 1


def test_a_half_complex_number_is_read_as_what_it_is():
    pairs = np.float16([1.5, -2, np.inf, 0])
    seen = replace(tensor(np.zeros(2)), dtype="complex32", shape=(2,), data=pairs.tobytes())

    assert seen.array().tolist() == [1.5 - 2j, complex(math.inf, 0)]


def test_elements_that_cancel_in_a_sketch_are_seen_in_the_extremes_and_the_norm():
    """Two elements of one sum, 61 apart, moved by as much against their signs."""
    base = np.zeros(1000)
    base[::7] = np.linspace(1, 2, len(base[::7]))
    signs = sketch_signs(base.size)
    at = next(i for i in range(5, 900) if signs[i] != signs[i + 61])
    moved = base.copy()
    moved[[at, at + 61]] += 9.0
    pair = tensor(base, values=False), tensor(moved, values=False)

    assert np.allclose(pair[0].sketch, pair[1].sketch)
    assert relation(Rule(rel_l2=1e-2), *pair) is DIFFERENT
    bounds = sketch_distance(*pair)
    assert 6.9 < bounds.lower <= 9 * math.sqrt(2)
    assert bounds.upper == math.inf


def test_elements_that_cancel_in_a_sketch_and_change_the_norm_alone_stay_undecided():
    base = np.tile([-3.0, 3, 1], 400)
    signs = sketch_signs(base.size)
    ones = [i for i in range(2, 1000, 3) if signs[i] != signs[i + 183]]
    moved = base.copy()
    moved[[ones[0], ones[0] + 183]] = 2.9
    pair = tensor(base, values=False), tensor(moved, values=False)

    assert np.allclose(pair[0].sketch, pair[1].sketch)
    assert relation(Rule(rel_l2=1e-3), *pair) is UNDECIDED


def sketch_signs(size: int) -> np.ndarray:
    """The sign of each element in the sketches that these tests make."""
    return SIGNS[: -(-size // 61)].repeat(61, 0)[:size, 0]


def test_empty_tensors_have_no_distance():
    metrics = measure(tensor(np.ones((0, 3), np.float32)), tensor(np.ones((0, 3), np.float32)))

    assert metrics.unequal == 0


def test_metrics_of_scalars_and_of_absent_values():
    assert measure(scalar(0.5), scalar(0.25)).max_rel == 0.5
    assert measure(scalar("a"), scalar("b")).max_abs is None
    assert measure(None, scalar(1)).rel_l2 is None


@settings(derandomize=True, deadline=None)
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
