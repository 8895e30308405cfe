"""What differs is found at its true place, and what does not decide is left alone."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import SNAPSHOT, STATE, Run, Seen, Step

from traceparity.differ.policy import Align, Policy
from traceparity.differ.result import DiffResult, Outcome
from traceparity.tracefmt.records import Flag, Kind, Phase


def place(result: DiffResult) -> tuple[int, str, str] | None:
    first = result.first
    return first and (first.step, f"{first.phase}:{first.component}:{first.field}", first.kind)


def test_equal_runs_pass_without_reading_a_step(bench):
    result = bench.diff(Run().steps(5), Run().steps(5))

    assert result.outcome is Outcome.PASS
    assert result.first is None
    assert result.compared.observations == result.compared.skipped_equal > 0


@pytest.mark.parametrize(
    ("site", "kind"),
    [
        ("data:loader[0]:batch[image]", "value"),
        ("forward::input[0]", "value"),
        ("forward:body.1:output[0]", "value"),
        ("backward:body.0:grad_output[0]", "value"),
        ("gradient:head.weight:grad", "value"),
        ("optimizer:embed.weight:value", "value"),
        ("optimizer:optimizer[0]:exp_avg[body.0.weight]", "value"),
    ],
)
def test_a_changed_tensor_is_named_in_its_step_and_phase(bench, site, kind):
    result = bench.changed(lambda steps: steps[3].change(site, np.ones((9, 3), np.float32)))

    assert result.outcome is Outcome.FAIL
    assert place(result) == (3, site, kind)


def test_the_earliest_of_several_differences_is_named(bench):
    def change(steps: list[Step]) -> None:
        steps[2].change("optimizer:head.weight:value", np.zeros((9, 3), np.float32))
        steps[2].change("backward:embed:grad_output[0]", np.zeros((9, 3), np.float32))
        steps[3].change("forward::input[0]", np.zeros((9, 3), np.float32))

    result = bench.changed(change)

    assert place(result) == (2, "backward:embed:grad_output[0]", "value")
    assert [each.step for each in result.divergences] == [2, 3]


def test_a_whole_micro_batch_comes_before_the_next_one(bench):
    def change(steps: list[Step]) -> None:
        for at, row in enumerate(steps[1].rows):
            late_forward = row.site == "forward:embed:input[0]" and row.microbatch == 1
            early_backward = row.site == "backward:embed:grad_output[0]" and row.microbatch == 0
            if late_forward or early_backward:
                steps[1].rows[at] = replace(row, value=np.zeros((9, 3), np.float32))

    result = bench.changed(change, run=Run(batches=2))

    assert place(result) == (1, "backward:embed:grad_output[0]", "value")
    assert result.first.microbatch == 0


def test_accumulated_gradients_that_differ_alone_are_named_in_the_order_of_parameters(bench):
    def change(steps: list[Step]) -> None:
        for layer in ("head", "body.1", "embed"):
            steps[1].change(f"backward:{layer}.weight:grad", np.zeros((9, 3), np.float32))

    assert place(bench.changed(change)) == (1, "backward:embed.weight:grad", "value")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.ones((9, 3), np.float64), "dtype"),
        (np.ones((9, 4), np.float32), "shape"),
        (np.full((9, 3), np.nan, np.float32), "nonfinite"),
    ],
)
def test_the_kind_says_what_about_a_tensor_differs(bench, value, kind):
    result = bench.changed(lambda steps: steps[1].change("forward:head:output[0]", value))

    assert result.first.kind == kind


def test_a_rate_that_the_optimizer_uses_is_a_hyperparameter(bench):
    def change(steps: list[Step]) -> None:
        steps[0].change("scheduler:scheduler.last_epoch:value", 1)
        at = steps[1].find("scheduler:optimizer[0] group[0]:lr")
        steps[1].rows[at] = replace(steps[1].rows[at], value=0.2)

    assert place(bench.changed(change)) == (
        1,
        "scheduler:optimizer[0] group[0]:lr",
        "hyperparameter",
    )


def test_context_never_decides(bench):
    def change(steps: list[Step]) -> None:
        for step in steps:
            for at, row in enumerate(step.rows):
                if row.flags & Flag.CONTEXT:
                    step.rows[at] = replace(row, value="something else")
        steps[2].add(Phase.FORWARD, "head", "output[0]", 1, flags=Flag.CONTEXT | Flag.EVALUATION)

    assert bench.changed(change).outcome is Outcome.PASS


def test_evaluation_activity_decides_where_the_policy_says_so(bench):
    def change(steps: list[Step]) -> None:
        flags = Flag.CONTEXT | Flag.EVALUATION
        steps[2].add(Phase.FORWARD, "head", "output[0]", np.ones(3), flags=flags)

    result = bench.changed(change, Policy(Align(evaluation="compare")))

    assert place(result) == (2, "forward:head:output[0]", "extra")


@pytest.mark.parametrize("rows", [["draws", "output[0]"], ["output[0]", "draws"]])
@pytest.mark.parametrize("changed", [2.0, 1.0])
def test_evaluations_that_differ_are_said_of_runs_that_pass(bench, rows, changed):
    def evaluated(output: float) -> list[Step]:
        steps = Run().steps(4)
        for row in rows:
            value = output if row == "output[0]" else 0
            flags = Flag.CONTEXT | Flag.EVALUATION
            steps[2].add(Phase.FORWARD, "average", row, value, flags=flags)
        return steps

    result = bench.diff(evaluated(1.0), evaluated(changed))

    assert result.outcome is Outcome.PASS
    said = [note for note in result.notes if note.startswith("evaluation activity")]
    assert len(said) == (changed != 1.0)
    assert all("from step 2 on, first forward:average:output[0]" in note for note in said)


def test_the_order_of_independent_sites_is_no_difference(bench):
    def change(steps: list[Step]) -> None:
        rows = steps[2].rows
        first, second = (steps[2].find(f"forward:{name}:input[0]") for name in ("body.0", "body.1"))
        rows[first], rows[second] = rows[second], rows[first]
        gradients = [at for at, row in enumerate(rows) if row.phase == Phase.GRADIENT]
        for at, row in zip(gradients, [rows[at] for at in reversed(gradients)], strict=True):
            rows[at] = row

    assert bench.changed(change).outcome is Outcome.PASS


def test_a_change_log_row_equal_to_the_carried_value_is_no_difference(bench):
    def change(steps: list[Step]) -> None:
        weight = Run().array("weight", "embed", 3)
        steps[3].rows.insert(0, _row(Phase.STATE, "embed.weight", "value", weight))
        steps[4].rows.insert(0, _row(Phase.STATE, "head.weight", "requires_grad", True))

    assert bench.changed(change).outcome is Outcome.PASS


def test_a_change_log_row_unequal_to_the_carried_value_is_a_divergence_of_that_state(bench):
    weight = np.zeros((9, 3), np.float32)

    result = bench.changed(
        lambda steps: steps[3].rows.insert(0, _row(Phase.STATE, "embed.weight", "value", weight))
    )

    assert place(result) == (3, "state:embed.weight:value", "value")
    assert result.first.reference.norm > 0
    assert result.first.target.norm == 0


def test_a_flag_left_over_from_evaluation_is_named(bench):
    result = bench.changed(
        lambda steps: steps[3].rows.insert(0, _row(Phase.STATE, "body.0", "training", False))
    )

    assert place(result) == (3, "state:body.0:training", "flag")


def test_values_of_the_state_come_before_what_one_side_lacks(bench):
    def change(steps: list[Step]) -> None:
        steps[0].rows.insert(0, _row(Phase.STATE, "optimizer[0]", "exp_avg[head.weight]", 1.0))
        steps[0].change("state:optimizer[0] group[0]:weight_decay", 0.5)

    assert place(bench.changed(change)) == (
        0,
        "state:optimizer[0] group[0]:weight_decay",
        "hyperparameter",
    )


def test_a_rate_that_is_overwritten_before_use_is_dead_and_never_decides(bench):
    """nanoGPT sets the rate by hand in every iteration, whatever a checkpoint restored."""

    def both(steps: list[Step], restored: float) -> list[Step]:
        rows = steps[3].rows
        rows.insert(0, _row(Phase.STATE, "optimizer[0] group[0]", "lr", restored))
        at = next(at for at, row in enumerate(rows) if row.phase == Phase.OPTIMIZER)
        rows.insert(at, _row(Phase.OPTIMIZER, "optimizer[0] group[0]", "lr", 0.05))
        return steps

    result = bench.diff(both(Run().steps(5), 0.07), both(Run().steps(5), 0.08))

    assert result.outcome is Outcome.PASS


def test_counters_of_another_scheduler_class_are_no_divergence(bench):
    def change(steps: list[Step]) -> None:
        steps[0].change("state:scheduler:class", "LambdaLR")
        for step in steps:
            step.remove("scheduler:scheduler.last_epoch:value")

    assert bench.changed(change).outcome is Outcome.PASS


def test_counters_of_the_same_scheduler_class_decide(bench):
    result = bench.changed(lambda steps: steps[2].change("scheduler:scheduler.last_epoch:value", 7))

    assert place(result) == (2, "scheduler:scheduler.last_epoch:value", "value")


def test_an_auxiliary_that_takes_no_part_is_no_divergence(bench):
    def change(steps: list[Step]) -> None:
        aux = np.ones((2, 2), np.float32)
        rows = steps[0].rows
        rows.insert(0, _row(Phase.STATE, "aux.weight", "value", aux, SNAPSHOT))
        rows.insert(1, _row(Phase.STATE, "aux.weight", "requires_grad", True, SNAPSHOT))
        rows.insert(2, _row(Phase.STATE, "aux", "training", True, SNAPSHOT))
        rows.insert(3, _row(Phase.STATE, "aux.weight", "group", "optimizer[0] group[0]", SNAPSHOT))
        for step in steps:
            step.add(Phase.GRADIENT, "aux.weight", "grad", None)

    assert bench.changed(change).outcome is Outcome.PASS


def test_an_extra_parameter_that_is_trained_is_a_divergence(bench):
    def change(steps: list[Step]) -> None:
        steps[0].rows.insert(0, _row(Phase.STATE, "aux.weight", "value", np.ones(9), SNAPSHOT))
        steps[0].add(Phase.GRADIENT, "aux.weight", "grad", np.ones(9))

    assert place(bench.changed(change)) == (0, "state:aux.weight:value", "extra")


def test_a_gradient_that_became_none_is_missing(bench):
    result = bench.changed(lambda steps: steps[1].change("gradient:head.weight:grad", None))

    assert place(result) == (1, "gradient:head.weight:grad", "missing")


def test_differing_batches_of_differing_samples_are_told_by_their_ids(bench):
    def change(steps: list[Step]) -> None:
        steps[2].change("data:loader[0]:batch[image]", np.zeros((9, 3), np.float32))
        steps[2].change("data:loader[0]:sample_ids", [90, 91, 92, 93])

    result = bench.changed(change)

    assert place(result) == (2, "data:loader[0]:batch[image]", "sample_id")
    detail = next(each.detail for each in result.first.evidence if each.what == "sample_ids")
    assert detail == "sample IDs [8, 9, 10, 11] against [90, 91, 92, 93]"


def test_equal_ids_with_other_contents_name_the_samples_and_the_worker(bench):
    def change(steps: list[Step]) -> None:
        steps[3].change("data:loader[0]:batch[image]", np.zeros((9, 3), np.float32))
        names = ["digest12", "changed", "digest14", "digest15"]
        steps[3].change("data:loader[0]:sample_digests", names)

    evidence = {each.what: each for each in bench.changed(change).first.evidence}

    assert evidence["sample_ids"].equal
    assert evidence["samples"].detail == "the contents differ for samples [13]"
    assert evidence["worker"].detail == "the batch was made by worker 1"


def test_unknown_sample_ids_are_no_ids(bench):
    def change(steps: list[Step]) -> None:
        steps[1].change("data:loader[0]:sample_ids", None)

    assert bench.changed(change).outcome is Outcome.PASS


def test_device_differences_decide_only_where_declared(bench, tmp_path):
    result = bench.diff(Run().steps(2), Run().steps(2), Policy(Align(device="compare")))

    assert result.outcome is Outcome.PASS
    assert result.compared.skipped_equal == 0


def test_recomputation_is_kept_out_of_the_forward_sequence(bench):
    def change(steps: list[Step]) -> None:
        at = steps[1].find("backward:head:grad_output[0]")
        again = replace(
            steps[1].rows[steps[1].find("forward:body.0:input[0]")], flags=Flag.RECOMPUTED
        )
        steps[1].rows.insert(at, again)

    assert bench.changed(change).outcome is Outcome.PASS


def _row(phase: Phase, component: str, field: str, value: object, flags: Flag = STATE):
    kind = Kind.TENSOR if isinstance(value, np.ndarray) else Kind.SCALAR
    return Seen(phase, component, field, value, flags=flags, kind=kind)
