"""The longest common subsequence is common, in order and as long as possible."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from traceparity.differ.sequence import common_subsequence

WORDS = st.lists(st.integers(0, 3), max_size=12)


def longest(left: list[int], right: list[int]) -> int:
    lengths = [0] * (len(right) + 1)
    for item in left:
        before = 0
        for j, other in enumerate(right):
            here = lengths[j + 1]
            lengths[j + 1] = before + 1 if item == other else max(here, lengths[j])
            before = here
    return lengths[-1]


@given(WORDS, WORDS)
def test_pairs_are_equal_increasing_and_as_many_as_there_can_be(left, right):
    pairs = common_subsequence(left, right)

    assert all(left[i] == right[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert len(pairs) == longest(left, right)


def test_sequences_with_too_little_in_common_give_their_ends_only():
    left, right = [1, *range(10, 20), 2], [1, *range(30, 40), 2]

    assert common_subsequence(left, right, most_edits=5) == [(0, 0), (11, 11)]
