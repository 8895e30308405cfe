"""Preconditions: true of what they are learned from, and no stronger than they must be."""

from hypothesis import given
from hypothesis import strategies as st

from traceparity.invariants.preconditions import Example, holds, learn

EXAMPLES = st.lists(
    st.builds(
        Example,
        st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 3)),
        st.sampled_from(["yes", "no"]),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=14,
)


@given(EXAMPLES)
def test_no_example_breaks_what_is_learned_from_it(examples):
    for precondition in learn(examples, "yes"):
        inside = [each for each in examples if holds(precondition, each.context)]

        assert inside
        assert {each.outcome for each in inside} == {"yes"}


@given(EXAMPLES)
def test_an_outcome_that_some_value_tells_is_learned(examples):
    """Where one field separates the outcomes, every example with the outcome is covered."""
    told = [
        Example((*each.context, each.outcome == "yes"), each.outcome, each.count)
        for each in examples
    ]
    wanted = [each for each in told if each.outcome == "yes"]

    found = learn(told, "yes")

    assert all(any(holds(each, example.context) for each in found) for example in wanted)


def test_an_outcome_without_exception_needs_no_precondition():
    examples = [Example((True, "a"), 1, 3), Example((False, "b"), 1, 2)]

    assert learn(examples, 1) == [()]


def test_the_general_field_is_taken_where_the_specific_one_says_no_more():
    examples = [Example(("train", f"path{n}"), True, 1) for n in range(5)]
    examples += [Example(("eval", f"path{n}"), False, 1) for n in range(5)]

    assert learn(examples, True) == [((0, frozenset({"train"})),)]


def test_contradicting_examples_of_one_context_teach_nothing():
    assert learn([Example(("a",), True, 5), Example(("a",), False, 1)], True) == []


def test_true_is_not_one():
    assert not holds(((0, frozenset({1})),), (True,))
    assert learn([Example(("a",), 1, 2), Example(("a",), True, 2)], 1) == []
