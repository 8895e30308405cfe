"""Boxes of a whole tensor: whether they make it up, and what they come to."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparity.differ.shard_boxes import Box, make_up, put_together


def boxes_of(whole, cuts):
    spans = [
        list(itertools.pairwise([0, *sorted(at for at in each if at < size), size]))
        for each, size in zip(cuts, whole, strict=True)
    ]
    return [
        Box(tuple(a for a, _ in box), tuple(b - a for a, b in box))
        for box in itertools.product(*spans)
    ]


@given(st.data())
def test_all_boxes_between_cuts_make_up_the_whole(data):
    whole = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    cuts = [data.draw(st.lists(st.integers(1, 6), max_size=2, unique=True)) for _ in whole]
    boxes = boxes_of(whole, cuts)
    tensor = np.arange(np.prod(whole), dtype="<f4").reshape(whole)

    def held(box):
        place = tuple(slice(a, a + n) for a, n in zip(box.offset, box.sizes, strict=True))
        return np.ascontiguousarray(tensor[place]).tobytes()

    assert make_up(boxes, whole)
    assert put_together([(box, held(box)) for box in boxes], whole, tensor.dtype) == (
        tensor.tobytes()
    )
    assert not make_up(boxes[1:], whole)
    assert not make_up([*boxes, boxes[0]], whole)


@pytest.mark.parametrize(
    "boxes",
    [
        [Box((0,), (2,)), Box((1,), (2,))],
        [Box((0,), (2,)), Box((3,), (2,))],
        [Box((0, 0), (2, 2))],
        [],
    ],
    ids=["overlap", "outside", "of another shape", "none"],
)
def test_what_overlaps_or_lacks_makes_up_nothing(boxes):
    assert not make_up(boxes, (4,))


def test_ranks_that_hold_nothing_take_nothing_away():
    assert make_up([Box((0,), (3,)), Box((3,), (0,))], (3,))
