"""Infinities, and numbers whose squares or differences leave the range of float64."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compare import DIFFERENT, EQUAL, UNDECIDED, relation, scalar, tensor

from traceparity.differ.metrics import measure
from traceparity.differ.policy import Rule

INF = math.inf
TOLERANT = [
    Rule(rel_l2=1e-3),
    Rule(rel_l2=9.0, symmetric=True),
    Rule(rel_l2=9.0, equal_nan=True),
    Rule(rtol=9.0),
    Rule(rtol=9.0, symmetric=True),
    Rule(atol=1e9),
    Rule(ulp=1 << 63),
]
PARTED = [(INF, -INF), (INF, 1.0), (1.0, INF), (-INF, 1e308), (1.0, math.nan)]


@pytest.mark.parametrize("rule", TOLERANT)
@pytest.mark.parametrize(
    "pair", [(INF, -INF), (INF, 1.0), (1.0, INF), (-INF, 1e308), (1.0, math.nan)]
)
def test_no_tolerance_takes_in_an_infinity(rule, pair):
    left, right = pair
    kinds = [np.float32, np.float64, np.complex64, np.complex128]

    assert relation(rule, scalar(left), scalar(right)) is DIFFERENT
    assert relation(rule, scalar([1.0, left]), scalar([1.0, right])) is DIFFERENT
    assert relation(rule, scalar({"a": left}), scalar({"a": right})) is DIFFERENT
    with np.errstate(all="ignore"):
        for kind in kinds:
            both = (tensor(np.array([2, each], kind)) for each in pair)
            assert relation(rule, *both) is DIFFERENT


@pytest.mark.parametrize(
    ("left", "right", "apart"),
    [
        (1e300, 1.5e300, 0.5),
        (1e300, -1e300, 2.0),
        (1.7e308, -1.7e308, 2.0),
        (1e-200, 2e-200, 1.0),
        (5e-324, 1e-323, 1.0),
        (0.0, 2e-200, None),
    ],
)
def test_a_relative_distance_is_right_where_squares_leave_the_range(left, right, apart):
    with np.errstate(all="ignore"):
        pairs = [
            [kind(np.full(shape, each)) for each in (left, right)]
            for shape in ((), 40)
            for kind in (tensor, lambda array: tensor(array * (1 + 0j)))
        ]
    pairs.append([scalar(left), scalar(right)])

    for pair in pairs:
        assert relation(Rule(rel_l2=1e-5), *pair) is DIFFERENT
        assert relation(Rule(rel_l2=0.0), *pair) is DIFFERENT
        if apart is not None:
            assert relation(Rule(rel_l2=apart * 1.001), *pair) is EQUAL
            assert relation(Rule(rel_l2=apart * 0.999), *pair) is DIFFERENT
            assert pair[0].kind != pair[0].kind.TENSOR or measure(*pair).rel_l2 == pytest.approx(
                apart
            )


def test_a_difference_that_is_small_beside_a_huge_element_is_within_a_tolerance():
    left, right = np.linspace(1, 2, 40), np.linspace(2, 4, 40)
    left[0] = right[0] = 1e200

    assert relation(Rule(rel_l2=1e-5), tensor(left), tensor(right)) is EQUAL
    assert relation(Rule(rel_l2=0.0), tensor(left), tensor(right)) is DIFFERENT


def test_an_elementwise_limit_that_overflows_is_still_a_limit():
    left, right = tensor(np.array([1.7e308])), tensor(np.array([-1.7e308]))

    assert relation(Rule(rtol=1.9), left, right) is DIFFERENT
    assert relation(Rule(rtol=2.1), left, right) is EQUAL
    assert relation(Rule(rtol=1.0, atol=1.6e308), left, right) is DIFFERENT
    assert relation(Rule(rtol=1.0, atol=1.75e308), left, right) is EQUAL


@settings(derandomize=True, deadline=None)
@given(st.integers(-1000, 1000), st.integers(1, 9), st.integers(0, 2**32))
def test_a_relative_distance_is_the_same_in_every_unit(shift, size, seed):
    left, right = np.random.default_rng(seed).uniform(0.5, 1, (2, size))
    plain = measure(tensor(left), tensor(right)).rel_l2

    with np.errstate(all="ignore"):
        moved = [tensor(np.ldexp(array, shift)) for array in (left, right)]

    assert measure(*moved).rel_l2 == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_ulp_of_complex_numbers_is_that_of_both_parts(kind):
    part = np.float32 if kind is np.complex64 else np.float64
    left = np.linspace(1, 2, 40).astype(kind) * kind(1 + 1j)
    right = left.copy()
    right.imag[7] = np.nextafter(np.nextafter(left.imag[7], part(9)), part(9))

    assert relation(Rule(ulp=2), tensor(left), tensor(right)) is EQUAL
    assert relation(Rule(ulp=1), tensor(left), tensor(right)) is DIFFERENT
    assert measure(tensor(left), tensor(right)).ulp == 2
    assert measure(tensor(left), tensor(right)).unequal == 1


@pytest.mark.parametrize(("left", "right"), [(1e-200, 2e-200), (0.0, 2e-200), (1e300, 1.5e300)])
def test_sketches_that_cannot_hold_such_numbers_decide_nothing(left, right):
    with np.errstate(all="ignore"):
        pair = [tensor(np.full(40, each), values=False) for each in (left, right)]
        pair = [in_single(each) for each in pair]

    assert relation(Rule(rel_l2=1e-3), *pair) is UNDECIDED


@pytest.mark.parametrize("size", [1e-25, 1e20])
def test_sketches_decide_where_the_norm_alone_is_out_of_range(size):
    """The norm of float32 elements is taken in float32, which squares overflow and leave."""
    base = np.random.default_rng(1).standard_normal(400) * size
    arrays = [(base * factor).astype(np.float32) for factor in (1, 1 + 1e-6, 1.5)]
    seen = [in_single(tensor(array, values=False)) for array in arrays]

    assert relation(Rule(rel_l2=1e-3), seen[0], seen[1]) is EQUAL
    assert relation(Rule(rel_l2=1e-3), seen[0], seen[2]) is DIFFERENT


def in_single(seen):
    """As the recorder takes statistics: in float32, with squares that vanish or overflow."""
    with np.errstate(all="ignore"):
        norm = np.float32(np.sqrt(np.float32(np.float32(seen.norm) ** 2)))
        stats = {
            "minimum": float(np.float32(seen.minimum)),
            "maximum": float(np.float32(seen.maximum)),
        }
    return replace(seen, norm=float(norm), **stats)
