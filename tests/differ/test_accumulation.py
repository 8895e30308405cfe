"""Windows of several micro-batches, put together and compared as one batch."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import Step, write_trace
from windows import run

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.result import DiffResult, Outcome
from traceparity.tracefmt.records import Phase

CLOSE = (Rule("*", rtol=1e-5, atol=1e-6),)


def declared(*microbatches: int, rules: tuple[Rule, ...] = CLOSE, **align: Any) -> Policy:
    counts = (microbatches[0], microbatches[1])
    return Policy(Align(kind="accumulation", microbatches=counts, **align), rules)


FULL = run([8], [8], [8])
HALVES = run([4, 4], [4, 4], [4, 4])
UNEVEN = run([3, 4, 1], [3, 4, 1], [3, 4, 1])


def compare(
    bench: Any, target: list[Step], policy: Policy, reference: list[Step] = FULL, **options: Any
) -> DiffResult:
    return bench.diff(reference, target, policy, **{"capture": "values", **options})


def place(result: DiffResult) -> str:
    first = result.first
    return first and f"{first.step} {first.phase}:{first.component}:{first.field}"


@pytest.mark.parametrize(
    ("reference", "target", "counts"),
    [
        (FULL, HALVES, (1, 2)),
        (HALVES, FULL, (2, 1)),
        (FULL, UNEVEN, (1, 3)),
        (HALVES, UNEVEN, (2, 3)),
        (UNEVEN, UNEVEN, (3, 3)),
        (FULL, FULL, (1, 1)),
    ],
)
def test_one_batch_equals_its_parts_put_together(bench, reference, target, counts):
    result = compare(bench, target, declared(*counts), reference)

    assert result.outcome is Outcome.PASS, (result.reason, place(result))
    assert not result.notes


@pytest.mark.parametrize(
    ("site", "phase"),
    [
        ("data:loader[0]:batch[image]", "data"),
        ("forward:layer:output[0]", "forward"),
        ("loss:loss:value", "loss"),
        ("backward:layer:grad_output[0]", "backward"),
        ("gradient:layer.weight:grad", "gradient"),
        ("optimizer:layer.weight:value", "optimizer"),
    ],
)
def test_a_changed_value_is_found_at_its_phase(bench, site, phase):
    target = run([4, 4], [4, 4], [4, 4])
    value = target[1].rows[target[1].find(site)].value
    target[1].change(site, np.asarray(value + np.float32(1)))

    result = compare(bench, target, declared(1, 2))

    assert result.outcome is Outcome.FAIL
    assert place(result) == f"1 {site}"
    assert result.first.phase == phase


def test_an_early_accumulated_gradient_is_not_compared_and_the_last_one_is(bench):
    early, last = (run([4, 4], [4, 4], [4, 4]) for _ in range(2))
    for steps, batch in ((early, 0), (last, 1)):
        at = [
            index
            for index, row in enumerate(steps[0].rows)
            if row.phase == Phase.BACKWARD and row.field == "grad" and row.microbatch == batch
        ]
        steps[0].rows[at[0]] = replace(steps[0].rows[at[0]], value=np.zeros(5, np.float32))

    assert compare(bench, early, declared(1, 2)).outcome is Outcome.PASS
    assert place(compare(bench, last, declared(1, 2))) == "0 backward:layer.weight:grad"


def test_the_place_in_a_joined_tensor_is_that_of_the_sample(bench):
    target = run([4, 4])
    at = [index for index, row in enumerate(target[0].rows) if row.site == "forward::input[0]"]
    changed = target[0].rows[at[1]].value.copy()
    changed[2, 3] += 1
    target[0].rows[at[1]] = replace(target[0].rows[at[1]], value=changed)

    first = compare(bench, target, declared(1, 2), run([8])).first

    assert first.metrics.first_index == (6, 3)
    assert first.reference.shape == first.target.shape == (8, 5)


# -- how many micro-batches -----------------------------------------------------------------------


@pytest.mark.parametrize("ids", [True, False])
def test_a_short_last_update_with_the_same_samples_is_in_order(bench, ids):
    reference, target = run([8], [8], [4], ids=ids), run([2] * 4, [2] * 4, [2, 2], ids=ids)

    result = compare(bench, target, declared(1, 4), reference)

    assert result.outcome is Outcome.PASS, (result.reason, place(result))
    assert result.notes == (
        "the target took fewer micro-batches than declared in update 2, of equal samples",
    )


@pytest.mark.parametrize(
    ("cuts", "side", "count", "wanted"),
    [
        (([2] * 4, [2] * 3), "target", 3, 4),
        (([2] * 4, [2] * 3 + [1, 1]), "target", 5, 4),
        (([2] * 4, [2]), "target", 1, 4),
    ],
)
def test_another_count_is_a_divergence_of_structure(bench, cuts, side, count, wanted):
    result = compare(bench, run(*cuts), declared(1, 4), run([8], [8]))

    assert result.outcome is Outcome.FAIL
    assert place(result) == "1 data:update:micro_batches"
    assert result.first.kind == ("missing" if count < wanted else "extra")
    plural = "" if count == 1 else "es"
    sentence = f"the {side} took {count} micro-batch{plural} in update 1, {wanted} declared"
    assert sentence in result.reason


def test_a_count_of_the_reference_is_checked_too(bench):
    result = compare(bench, run([4, 4]), declared(1, 2), run([4, 4]))

    assert "the reference took 2 micro-batches in update 0, 1 declared" in result.reason


def test_a_miscount_comes_after_the_state_that_the_update_starts_from(bench):
    target = run([2] * 3)
    target[0].change("state:layer.weight:value", np.zeros((1, 5), np.float32))

    result = compare(bench, target, declared(1, 4), run([8]))

    assert place(result) == "0 state:layer.weight:value"


def test_micro_batches_that_no_update_follows_are_named(bench):
    target = run([4, 4], [4])
    target[1].rows = [row for row in target[1].rows if row.phase < Phase.GRADIENT]
    target[1].tail = True

    result = compare(bench, target, declared(1, 2), run([8], [4]))

    assert place(result) == "1 data:update:micro_batches"
    assert "the target ended in update 1: no optimizer stepped after 1 micro-batch" in result.reason


def test_an_update_that_was_cut_off_is_not_counted(bench):
    policy = declared(1, 4)
    reference = bench.write(run([8], [8]), capture="values")
    target = bench.write(run([2] * 4, [2] * 3), capture="values", complete=False)

    result = diff_runs(reference, [target], policy)

    assert result.first is None or result.first.field != "micro_batches"


def test_an_accumulation_that_was_never_switched_on_is_no_short_update(bench):
    """Every update took one micro-batch of all samples, where four were declared."""
    result = compare(bench, FULL, declared(1, 4))

    assert result.outcome is Outcome.FAIL
    assert place(result) == "0 data:update:micro_batches"
    assert "the target took 1 micro-batch in update 0, 4 declared" in result.reason


def test_larger_micro_batches_than_declared_are_no_short_update(bench):
    result = compare(bench, run([2] * 4, [4, 4]), declared(1, 4), run([8], [8]))

    assert place(result) == "1 data:update:micro_batches"


# -- what cannot be put together ------------------------------------------------------------------


def test_without_values_what_remains_is_compared_and_the_rest_is_said(bench):
    rules = (Rule("*", rel_l2=1e-5),)

    result = compare(bench, HALVES, declared(1, 2, rules=rules), capture="sketch")

    assert result.outcome is Outcome.PASS, (result.reason, place(result))
    assert {note.partition(":")[0] for note in result.notes} == {
        "not compared in the phase forward",
        "not compared in the phase backward",
    }
    assert all("--capture values" in note for note in result.notes)


def test_without_values_digests_of_samples_show_equal_contents(bench):
    rules = (Rule("*", rel_l2=1e-5), Rule("data:*"))
    target = run([4, 4])
    at = [index for index, row in enumerate(target[0].rows) if row.field == "sample_digests"]
    changed = ["digest4", "other", "digest6", "digest7"]
    target[0].rows[at[1]] = replace(target[0].rows[at[1]], value=changed)

    result = compare(bench, target, declared(1, 2, rules=rules), run([8]), capture="sketch")

    assert place(result) == "0 data:loader[0]:batch[image]"
    assert "the contents differ for samples [5]" in result.first.evidence[1].detail


def test_contents_that_may_differ_by_round_off_are_not_judged_by_digests(bench):
    rules = (Rule("*", rel_l2=1e-5),)
    target = run([4, 4])
    at = [index for index, row in enumerate(target[0].rows) if row.field == "sample_digests"]
    changed = ["digest4", "other", "digest6", "digest7"]
    target[0].rows[at[1]] = replace(target[0].rows[at[1]], value=changed)

    result = compare(bench, target, declared(1, 2, rules=rules), run([8]), capture="sketch")

    assert result.outcome is Outcome.ABSTAIN
    assert "data:loader[0]:batch[image]" in result.reason


def test_samples_in_another_order_are_found_by_digests_where_no_ids_are_known(bench):
    rules = (Rule("*", rel_l2=1e-5),)
    target = run([4, 4], ids=False)
    at = [index for index, row in enumerate(target[0].rows) if row.field == "sample_digests"]
    for index in at:
        row = target[0].rows[index]
        target[0].rows[index] = replace(row, value=row.value[::-1])

    policy = declared(1, 2, rules=rules)
    result = compare(bench, target, policy, run([8], ids=False), capture="sketch")

    assert result.outcome is Outcome.FAIL
    assert result.first.phase == "data"


def test_batches_padded_to_other_lengths_are_compared_by_sample_ids_alone(bench):
    target = run([4, 4])
    padded = [index for index, row in enumerate(target[0].rows) if row.field == "batch[image]"]
    wider = np.pad(target[0].rows[padded[1]].value, ((0, 0), (0, 2)))
    target[0].rows[padded[1]] = replace(target[0].rows[padded[1]], value=wider)

    result = compare(bench, target, declared(1, 2), run([8]))

    assert result.outcome is Outcome.PASS, (result.reason, place(result))
    assert "batch[image]: their shapes are not those of one batch" in result.notes[0]


def test_what_is_the_same_in_every_micro_batch_is_compared_as_it_is(bench):
    def with_table(steps: list[Step], last: float) -> list[Step]:
        for step in steps:
            batches = 1 + max(row.microbatch for row in step.rows)
            for batch in range(batches):
                table = np.full((3, 3), last, np.float32)
                step.add(Phase.FORWARD, "table", "output[0]", table, microbatch=batch)
                step.add(Phase.FORWARD, "table", "input[0]", 7, microbatch=batch)
        return steps

    same = compare(bench, with_table(run([4, 4]), 1), declared(1, 2), with_table(run([8]), 1))
    other = compare(bench, with_table(run([4, 4]), 2), declared(1, 2), with_table(run([8]), 1))

    assert same.outcome is Outcome.PASS
    assert not same.notes
    assert place(other) == "0 forward:table:output[0]"


def with_texts(steps: list[Step], change: int | None = None) -> list[Step]:
    """Batches with a text, boxes of several sizes and a label for each sample."""
    for step in steps:
        ids = [row for row in step.rows if row.field == "sample_ids"]
        for row in ids:
            for at, name in enumerate(row.value):
                text = "other" if name == change else f"text {name}"
                boxes = np.full((name % 3, 4), name, np.float32)
                more = {"microbatch": row.microbatch}
                step.add(Phase.DATA, "loader[0]", f"batch[text][{at}]", text, **more)
                step.add(Phase.DATA, "loader[0]", f"batch[boxes][{at}][xy]", boxes, **more)
                step.add(Phase.FORWARD, "", f"input[1][{at}]", boxes + 1, **more)
    return steps


def test_what_belongs_to_one_sample_each_follows_over_micro_batches(bench):
    reference = with_texts(run([8], [8]))

    same = compare(bench, with_texts(run([3, 4, 1], [3, 4, 1])), declared(1, 3), reference)
    other = compare(bench, with_texts(run([4, 4], [4, 4]), 13), declared(1, 2), reference)

    assert same.outcome is Outcome.PASS, (same.reason, place(same))
    assert not same.notes
    assert place(other) == "1 data:loader[0]:batch[text][0]"
    assert other.first.target.plain[5] == "other"


def test_leaves_beyond_the_samples_of_a_micro_batch_are_no_structure(bench):
    """A recording tells of long lists only the beginning, so that the index counts nothing."""
    reference, target = with_texts(run([8])), with_texts(run([2, 2, 2, 2]))
    reference[0].rows = [row for row in reference[0].rows if not row.field.endswith("[7]")]

    result = compare(bench, target, declared(1, 4), reference)

    assert result.outcome is Outcome.PASS, (result.reason, place(result))
    assert any("batch[text]" in note for note in result.notes)


def test_gradients_of_what_belongs_to_no_sample_add_up(bench):
    def with_gradients(steps: list[Step], *, scalar: float, table: float) -> list[Step]:
        for step in steps:
            for batch in range(1 + max(row.microbatch for row in step.rows)):
                more = {"microbatch": batch}
                step.add(Phase.BACKWARD, "", "grad_output[loss]", np.array(scalar), **more)
                values = np.full((1, 6), table, np.float32)
                step.add(Phase.BACKWARD, "table", "grad_output[0]", values, **more)
        return steps

    reference = with_gradients(run([8]), scalar=1.0, table=3.0)
    right = with_gradients(run([4, 4]), scalar=0.5, table=1.5)
    wrong = with_gradients(run([4, 4]), scalar=0.5, table=3.0)

    assert compare(bench, right, declared(1, 2), reference).outcome is Outcome.PASS
    assert place(compare(bench, wrong, declared(1, 2), reference)) == (
        "0 backward:table:grad_output[0]"
    )


def test_a_module_that_one_run_does_not_call_is_missing(bench):
    target = run([4, 4])
    target[0].rows = [row for row in target[0].rows if row.site != "forward:layer:output[0]"]

    result = compare(bench, target, declared(1, 2), run([8]))

    assert place(result) == "0 forward:layer:output[0]"
    assert result.first.kind == "missing"


def test_a_module_that_not_every_micro_batch_calls_is_left_out(bench):
    target = run([4, 4])
    target[0].remove("forward:layer:output[0]")

    result = compare(bench, target, declared(1, 2), run([8]))

    assert result.outcome is Outcome.PASS
    assert "not every micro-batch has them" in result.notes[0]


# -- losses ---------------------------------------------------------------------------------------


def with_losses(steps: list[Step], *losses: float) -> list[Step]:
    values = iter(losses)
    for step in steps:
        for at, row in enumerate(step.rows):
            if row.phase == Phase.LOSS:
                step.rows[at] = replace(row, value=np.array(np.float32(next(values))))
    return steps


@pytest.mark.parametrize(
    ("word", "losses"),
    [("sum", (1.5, 0.5)), ("mean", (3.0, 1.0)), ("weighted", (1.0, 3.0)), ("skip", (8.0, 9.0))],
)
def test_losses_combine_as_declared(bench, word, losses):
    """Weights are the numbers of samples: 4 and 4, or 6 and 2 for the weighted mean."""
    cuts = [6, 2] if word == "weighted" else [4, 4]
    total = 1.5 if word == "weighted" else 2.0
    target, reference = with_losses(run(cuts), *losses), with_losses(run([8]), total)

    right = compare(bench, target, declared(1, 2, loss=word), reference)
    target, reference = with_losses(run(cuts), *losses), with_losses(run([8]), total + 0.1)
    wrong = compare(bench, target, declared(1, 2, loss=word), reference)

    assert right.outcome is Outcome.PASS, (right.reason, place(right))
    assert place(wrong) == (None if word == "skip" else "0 loss:loss:value")


@pytest.mark.parametrize(
    ("weight", "weights"),
    [("batch[mask]", (3, 1)), ("batch[mask] != 0", (2, 1)), ("batch[count]", (7, 2))],
)
def test_weights_come_from_a_recorded_field(bench, weight, weights):
    masks = [np.array([2, 1, 0, 0], np.int64), np.array([0, 1, 0, 0], np.int64)]
    target = with_losses(run([4, 4]), 1.0, 2.0)
    for batch, (mask, count) in enumerate(zip(masks, (7, 2), strict=True)):
        target[0].add(Phase.DATA, "loader[0]", "batch[mask]", mask, microbatch=batch)
        target[0].add(Phase.DATA, "loader[0]", "batch[count]", count, microbatch=batch)
    total = (weights[0] + 2 * weights[1]) / sum(weights)
    reference = with_losses(run([8]), total)

    policy = declared(1, 2, loss="weighted", loss_weight=weight, unmatched="allow")
    result = compare(bench, target, policy, reference)

    assert result.outcome is Outcome.PASS, (result.reason, place(result))


def test_a_weight_that_the_trace_does_not_tell_decides_nothing(bench):
    """A misspelt field would else take the loss out of the comparison."""
    policy = declared(1, 2, loss="weighted", loss_weight="batch[absent]")
    other = with_losses(run([4, 4]), 1.0, 2.0)

    for target in (run([4, 4]), other):
        result = compare(bench, target, policy, run([8]))

        assert result.outcome is Outcome.ABSTAIN
        assert result.reason.startswith(
            'no losses can be compared by loss_weight = "batch[absent]": not every batch has'
        )


@pytest.mark.parametrize("last", [[], [[2]]], ids=["", "a last window of one micro-batch"])
def test_losses_are_compared_without_the_scales_that_scalers_gave_them(bench, last):
    reference, target = run([8], *last, scale=4.0), run([4, 4], *last, scale=1024.0)
    ignored = (*CLOSE, Rule("state:scaler*", ignore=True))

    result = compare(bench, target, declared(1, 2, rules=ignored), reference)

    assert result.outcome is Outcome.PASS, (result.reason, place(result))
    assert any("the gradient scalers have other scales" in note for note in result.notes)


# -- what holds for all cuts ----------------------------------------------------------------------

CUTS = st.lists(st.integers(1, 8), min_size=1, max_size=8).map(
    lambda sizes: [size for at, size in enumerate(sizes) if sum(sizes[: at + 1]) <= 8]
)


def whole(cut: list[int]) -> list[int]:
    """A cut of all eight samples."""
    return [*cut, 8 - sum(cut)] if sum(cut) < 8 else cut


@settings(max_examples=40, deadline=None)
@given(CUTS.map(whole), CUTS.map(whole), st.data())
def test_any_cut_equals_any_other_and_a_changed_sample_is_found_where_it_is(left, right, data):
    policy = declared(len(left), len(right))
    target = run(right, right)
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / f"{number}.trace" for number in range(3)]
        write_trace(paths[0], run(left, left), capture="values")
        write_trace(paths[1], target, capture="values")
        same = diff_runs(paths[0], [paths[1]], policy)
        fields = ("batch[image]", "input[0]", "output[0]", "grad_output[0]")
        rows = [at for at, row in enumerate(target[1].rows) if row.field in fields]
        at = data.draw(st.sampled_from(rows))
        row = target[1].rows[at]
        flat = row.value.copy()
        flat.reshape(-1)[data.draw(st.integers(0, flat.size - 1))] += 1
        target[1].rows[at] = replace(row, value=flat)
        write_trace(paths[2], target, capture="values")
        other = diff_runs(paths[0], [paths[2]], policy)

    assert same.outcome is Outcome.PASS, (same.reason, place(same))
    assert place(other) == f"1 {row.site}"
    assert other.first.metrics.unequal == 1
