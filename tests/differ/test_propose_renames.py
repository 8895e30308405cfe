"""The proposed rename table: found by values and order, short, right, and never applied."""

import string
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import SNAPSHOT, Run, Step

from traceparity.differ.errors import AlignmentError
from traceparity.differ.name_pairs import Listing, pair_names
from traceparity.differ.policy_file import read_policy
from traceparity.differ.propose_renames import propose_renames
from traceparity.differ.rename import Renames
from traceparity.differ.rename_table import rename_table
from traceparity.tracefmt.records import Phase


def digest(value: int) -> bytes:
    return value.to_bytes(16, "little")


def listing(*names: str, values: str = "") -> Listing:
    """Parameters in the order of use; letters of ``values`` that are equal are equal values."""
    letters = values or string.ascii_letters
    return Listing({name: digest(ord(letters[at])) for at, name in enumerate(names)})


def test_unequal_values_pair_whatever_the_names_and_the_order():
    found = pair_names(listing("a.w", "b.w", values="xy"), listing("q.w", "p.w", values="yx"))

    assert found.pairs == {"a.w": "p.w", "b.w": "q.w"}
    assert (found.by_value, found.by_order) == (2, 0)


def test_equal_values_pair_by_the_order_of_calls():
    names = ("norm1", "fc", "norm2"), ("ln_a", "lin", "ln_b")
    found = pair_names(*(listing(*side, values="1f1") for side in names))

    assert found.pairs == {"norm1": "ln_a", "fc": "lin", "norm2": "ln_b"}
    assert (found.by_value, found.by_order) == (1, 2)


def test_an_inserted_module_of_an_ordinary_value_moves_no_other():
    """Ones stand before and after a weight that is told by its value: that fixes the sides."""
    reference = listing("norm1", "fc", "norm2", values="1f1")
    target = listing("ln_a", "lin", "extra.1", "ln_b", values="1f11")

    found = pair_names(reference, target)

    assert found.pairs == {"norm1": "ln_a", "fc": "lin"}
    assert found.reference_only == ["norm2"]
    assert found.target_only == ["extra.1", "ln_b"]


def test_a_name_that_both_have_stays_although_its_value_differs():
    found = pair_names(listing("a", "b", values="xy"), listing("a", "b", values="xz"))

    assert found.pairs == {"a": "a", "b": "b"}
    assert (found.by_value, found.by_order) == (0, 0)


@pytest.mark.parametrize(
    ("pairs", "table"),
    [
        ({"a.weight": "b.weight", "a.bias": "b.bias"}, [("a", "b")]),
        ({"same.weight": "same.weight"}, []),
        ({"a.weight": "a.kernel"}, [("a.weight", "a.kernel")]),
        (
            {f"layers.{i}.fc.weight": f"blocks.{i}.mlp.0.weight" for i in range(3)},
            [("layers.{i}", "blocks.{i}.mlp"), ("layers.{i}.fc", "blocks.{i}.mlp.0")],
        ),
        (
            {f"h.{i}.e.{j}.w.x": f"layer{i}.e.{j}.w.x" for i in range(2) for j in range(2)},
            [("h.0", "layer0"), ("h.1", "layer1")],
        ),
        (
            {f"l.{i}.e.{j}.up.w": f"b.{i}.x.{j}.w1.w" for i in range(2) for j in range(2)},
            [
                ("l", "b"),
                ("l.{i}.e", "b.{i}.x"),
                ("l.{i}.e.{j}.up", "b.{i}.x.{j}.w1"),
            ],
        ),
        (
            {"l.0.a.w": "x.0.a.w", "l.1.a.w": "y.1.a.w"},
            [("l.0", "x.0"), ("l.1", "y.1")],
        ),
    ],
)
def test_the_table_is_as_short_as_it_can_be(pairs, table):
    assert rename_table(pairs) == table


def test_a_module_put_between_a_module_and_its_parts_is_not_its_counterpart():
    """Only what a module gives tells it from one inside of it: both hold the same parameters."""
    pairs = {
        f"layers.{i}.{old}.w": f"blocks.{i}.mlp.{new}.w"
        for i in range(2)
        for old, new in (("up", 0), ("down", 2))
    }
    outputs = (
        {f"layers.{i}": bytes([i]) for i in range(2)},
        {f"blocks.{i}": bytes([i]) for i in range(2)} | {"blocks.0.mlp": b"x", "blocks": b"\1"},
    )

    table = rename_table(pairs, outputs)

    assert table[0] == ("layers", "blocks")
    assert Renames(table).path("layers.1") == "blocks.1"
    assert all(Renames(table).path(old) == new for old, new in pairs.items())


NAME = st.lists(st.sampled_from(["a", "b", "c", "0", "1", "2"]), min_size=2, max_size=4).map(
    ".".join
)


@settings(deadline=None)
@given(st.lists(NAME, unique=True, max_size=12), st.randoms(use_true_random=False))
def test_a_table_turns_every_name_into_its_counterpart(names, random):
    others = list(names)
    random.shuffle(others)
    pairs = {f"{old}.w": f"{new}.w" for old, new in zip(names, others, strict=True)}

    renames = Renames(rename_table(pairs))

    assert {old: renames.path(old) for old in pairs} == pairs


def renamed(steps: list[Step]) -> list[Step]:
    text = {"body.": "blocks.", "embed": "tokens", "head": "out"}
    for step in steps:
        for at, row in enumerate(step.rows):
            component, field = row.component, row.field
            for old, new in text.items():
                component = component.replace(old, new)
                field = field.replace(old, new)
            step.rows[at] = type(row)(
                row.phase, component, field, row.value, row.flags, row.microbatch, row.call,
                row.kind,
            )  # fmt: skip
    return steps


def test_the_proposal_is_a_part_of_a_policy_file_that_makes_the_runs_equal(bench, tmp_path):
    reference, target = bench.write(Run().steps(3)), bench.write(renamed(Run().steps(3)))

    text = propose_renames(reference, target)
    (tmp_path / "policy.toml").write_text(text)
    policy = read_policy(tmp_path / "policy.toml")

    assert tomllib.loads(text)["align"]["rename"] == {
        "body": "blocks",
        "embed": "tokens",
        "head": "out",
    }
    assert "5 are told by their value" in text
    assert bench.diff(Run().steps(3), renamed(Run().steps(3)), policy).outcome.value == "PASS"
    assert bench.diff(Run().steps(3), renamed(Run().steps(3))).outcome.value == "FAIL"


def test_runs_of_one_naming_need_no_table(bench):
    trace = bench.write(Run().steps(2))

    assert "There is nothing to rename." in propose_renames(trace, trace)


def test_what_has_no_counterpart_is_listed(bench):
    more = Run().steps(2)
    value = np.ones((2, 2), np.float32)
    more[0].add(Phase.STATE, "extra.weight", "value", value, flags=SNAPSHOT)

    text = propose_renames(bench.write(Run().steps(2)), bench.write(more))

    assert "# Without a counterpart in the target: extra.weight" in text


def test_a_module_of_the_reference_alone_is_listed_under_its_own_name(bench):
    steps = Run().steps(2)
    steps[0].add(Phase.FORWARD, "body.act", "output[0]", np.ones((2, 2), np.float32))

    text = propose_renames(bench.write(steps), bench.write(renamed(Run().steps(2))))

    assert '"body" = "blocks"' in text
    assert "# Modules of the reference alone: body.act\n" in text


def test_a_trace_that_does_not_list_its_start_proposes_nothing(bench):
    whole, cut = bench.write(Run().steps(2)), bench.write(Run().steps(3)[1:], first=1)

    with pytest.raises(AlignmentError, match="the target does not list"):
        propose_renames(whole, cut)
