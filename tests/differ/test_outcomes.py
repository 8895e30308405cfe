"""Nothing passes without evidence: what cannot be judged abstains and says why."""

import numpy as np
import pytest
from synthetic import STATE, Run, Step

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import PHASES, Align, Policy, Rule
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Flag, Phase

INSIDE = (Phase.FORWARD, Phase.BACKWARD)


def test_a_target_that_ends_early_fails_with_the_missing_step(bench):
    result = bench.diff(Run().steps(5), Run().steps(4))

    assert result.outcome is Outcome.FAIL
    assert (result.first.step, result.first.field, result.first.kind) == (4, "step", "missing")


def test_equal_runs_of_which_all_is_ignored_abstain_although_the_index_is_equal(bench):
    policy = Policy(rules=(Rule("*", ignore=True),))

    result = bench.diff(Run().steps(3), Run().steps(3), policy)

    assert result.outcome is Outcome.ABSTAIN
    assert result.compared.observations == 0


def test_a_killed_target_abstains_although_all_it_has_is_equal(bench):
    reference = bench.write(Run().steps(5))
    target = bench.write(Run().steps(3), complete=False)

    result = diff_runs(reference, [target], Policy())

    assert result.outcome is Outcome.ABSTAIN
    assert "the target ends after step 2 (killed)" in result.reason


def test_rows_that_a_killed_target_did_not_write_are_not_missed(bench):
    steps = Run().steps(3)
    steps[2].rows = steps[2].rows[:14]
    reference = bench.write(Run().steps(5))

    result = diff_runs(reference, [bench.write(steps, complete=False)], Policy())

    assert result.outcome is Outcome.ABSTAIN


def test_a_difference_in_a_killed_target_still_fails(bench):
    steps = Run().steps(3)
    steps[1].change("loss:loss:value", np.array(np.float32(9)))
    reference = bench.write(Run().steps(5))

    result = diff_runs(reference, [bench.write(steps, complete=False)], Policy())

    assert result.outcome is Outcome.FAIL
    assert result.first.phase == "loss"


def test_disjoint_ranges_of_steps_abstain(bench):
    reference = bench.write(Run().steps(3))
    target = bench.write(Run().steps(6, 4), first=4)

    assert diff_runs(reference, [target], Policy()).outcome is Outcome.ABSTAIN


def test_a_comparison_of_nothing_abstains(bench):
    policy = Policy(rules=(Rule("*", ignore=True),))
    other = Run().steps(2)
    other[0].change("loss:loss:value", np.array(np.float32(9)))
    other[1].change("loss:loss:value", np.array(np.float32(9)))

    result = bench.diff(Run().steps(2), other, policy)

    assert result.outcome is Outcome.ABSTAIN
    assert "nothing was compared" in result.reason


def test_a_phase_that_one_side_did_not_record_abstains_and_is_not_missed(bench):
    def without_backward(steps: list[Step]) -> list[Step]:
        for step in steps:
            step.rows = [row for row in step.rows if row.phase != Phase.BACKWARD]
        return steps

    reference = bench.write(Run().steps(3))
    phases = [phase for phase in PHASES if phase != "backward"]
    target = bench.write(without_backward(Run().steps(3)), settings={"phases": phases})

    result = diff_runs(reference, [target], Policy())

    assert result.outcome is Outcome.ABSTAIN
    assert "the target did not record the phase backward" in result.reason


def test_a_policy_that_leaves_the_unrecorded_phase_out_passes(bench):
    phases = tuple(phase for phase in PHASES if phase != "backward")
    reference = bench.write(Run().steps(3))
    target = bench.write(Run().steps(3), settings={"phases": list(phases)})

    assert diff_runs(reference, [target], Policy(Align(phases=phases))).outcome is Outcome.PASS


def test_a_choice_of_recorded_steps_is_no_difference(bench):
    reference = bench.write(Run().steps(5))
    target = bench.write(Run().steps(2), settings={"steps": [[0, 2]]})

    result = diff_runs(reference, [target], Policy())

    assert result.outcome is Outcome.PASS
    assert "choice of steps" in result.notes[0]


def test_digests_of_different_kinds_are_never_compared(bench):
    reference = bench.write(Run().steps(2), digest="xxh3-128")
    target = bench.write(Run().steps(2), digest="multiply-add", capture="digest")

    result = diff_runs(reference, [target], Policy())

    assert result.outcome is Outcome.ABSTAIN
    assert result.compared.undecided > 0
    assert "--capture values" in result.reason


def test_what_one_side_could_not_observe_is_skipped_and_listed(bench):
    steps = Run().steps(3)
    for step in steps:
        step.rows = [
            row
            for row in step.rows
            if not (row.component.startswith("body.") and row.phase in INSIDE)
        ]
    reference = bench.write(Run().steps(3))
    target = bench.write(steps, notes=[("body", "compiled by torch.compile")])

    result = diff_runs(reference, [target], Policy())

    assert result.outcome is Outcome.PASS
    assert result.not_observed[0].component == "body"
    assert result.compared.blind > 0


@pytest.mark.parametrize("said", [True, False])
def test_a_gradient_that_could_not_be_read_is_no_missing_gradient(bench, said):
    """As the sum over processes that a distributed tensor still has to be given."""
    name = next(row.component for row in Run().steps(1)[0].rows if row.phase == Phase.GRADIENT)
    steps = Run().steps(3)
    for step in steps:
        step.rows = [
            row
            for row in step.rows
            if row.component != name or row.phase not in (Phase.GRADIENT, Phase.BACKWARD)
        ]
    notes = [(name, "its gradient is a partial sum over processes")] if said else []
    policy = Policy(Align(phases=("gradient", "optimizer")))

    result = diff_runs(bench.write(Run().steps(3)), [bench.write(steps, notes=notes)], policy)

    assert result.outcome is (Outcome.PASS if said else Outcome.FAIL)
    assert (result.compared.blind > 0) is said


def test_a_step_without_observed_results_does_not_pass(bench):
    def only_data(steps: list[Step]) -> list[Step]:
        for step in steps:
            step.rows = [row for row in step.rows if row.phase == Phase.DATA]
        return steps

    reference = bench.write(only_data(Run().steps(3)))
    notes = [("", "the optimizer has no hooks")]
    target = bench.write(only_data(Run().steps(3)), notes=notes)

    result = diff_runs(reference, [target], Policy())

    assert result.outcome is Outcome.ABSTAIN


def test_a_reference_that_disagrees_with_itself_judges_nobody(bench):
    other = Run().steps(3)
    other[1].change("forward:head:output[0]", np.zeros((9, 3), np.float32))
    reference, repeat, target = (bench.write(steps) for steps in (Run().steps(3), other, other))

    result = diff_runs(reference, [target], Policy(), repeat)

    assert result.outcome is Outcome.ABSTAIN
    assert result.first is None
    assert "step 1, forward:head:output[0]" in result.reason


def test_a_reference_that_agrees_with_its_repetition_judges_the_target(bench):
    other = Run().steps(3)
    other[1].change("forward:head:output[0]", np.zeros((9, 3), np.float32))
    paths = [bench.write(steps) for steps in (Run().steps(3), Run().steps(3), other)]

    assert diff_runs(paths[0], [paths[2]], Policy(), paths[1]).outcome is Outcome.FAIL


def test_a_tail_in_which_nothing_was_trained_is_no_step(bench):
    tail = Step(tail=True)
    tail.add(Phase.FORWARD, "", "output[0]", 1.0, flags=Flag.CONTEXT | Flag.EVALUATION)

    result = bench.diff([*Run().steps(3), tail], Run().steps(3))

    assert result.outcome is Outcome.PASS


@pytest.mark.parametrize("order", [0, 1])
def test_ranks_that_one_side_lacks_abstain_and_the_others_are_compared(tmp_path, bench, order):
    runs = [tmp_path / "one.trace", tmp_path / "two.trace"]
    for folder, ranks in zip(runs, ((0, 1), (0,)), strict=True):
        folder.mkdir()
        for rank in ranks:
            bench.write(Run().steps(2)).rename(folder / f"rank{rank}.trace")

    result = diff_runs(runs[order], [runs[1 - order]], Policy())

    assert result.outcome is Outcome.ABSTAIN
    assert "ranks" in result.reason
    assert result.compared.observations > 0


def test_over_ranks_the_earliest_phase_is_first_then_the_lowest_rank(tmp_path, bench):
    runs = [tmp_path / "one.trace", tmp_path / "two.trace"]
    sites = ("gradient:head.weight:grad", "forward:head:output[0]", "forward:head:output[0]")
    for folder in runs:
        folder.mkdir()
        for rank, site in enumerate(sites):
            steps = Run().steps(2)
            if folder == runs[1]:
                steps[1].change(site, np.zeros((9, 3), np.float32))
            bench.write(steps).rename(folder / f"rank{rank}.trace")

    first = diff_runs(runs[0], [runs[1]], Policy()).first

    assert (first.rank, first.phase) == (1, "forward")


@pytest.mark.parametrize("frozen", [True, False])
def test_agreement_of_runs_whose_updates_do_nothing_is_said(bench, frozen):
    """A learning rate of 0, say; where one parameter moves, the run is alive."""

    def still(steps: list[Step]) -> list[Step]:
        for step in steps:
            for row in step.rows:
                name = str(row.site)
                if name.startswith("optimizer:") and name.endswith(":value"):
                    step.change(name, np.zeros((2, 2), np.float32))
        if not frozen:
            steps[-1].change("optimizer:head.weight:value", np.ones((2, 2), np.float32))
        return steps

    result = bench.diff(still(Run().steps(3)), still(Run().steps(3)))

    assert result.outcome is Outcome.PASS
    said = "dead agreement: the parameters are the same after the last update as after the first"
    assert any(note.startswith(said) for note in result.notes) is frozen


def test_agreement_of_runs_that_train_nothing_passes_and_is_said(bench):
    def still(steps: list[Step]) -> list[Step]:
        for step in steps:
            step.change("loss:loss:value", np.array(np.float32(1)))
        return steps

    result = bench.diff(still(Run().steps(3)), still(Run().steps(3)))

    assert result.outcome is Outcome.PASS
    assert result.notes == (
        "dead agreement: the loss is the same in every step, so this comparison shows little",
    )


def test_weights_swapped_after_the_last_update_of_one_run_are_a_difference(bench):
    def with_tail(steps: list[Step], weight: float) -> list[Step]:
        tail = Step(tail=True)
        value = np.full((9, 3), weight, np.float32)
        tail.add(Phase.STATE, "embed.weight", "value", value, flags=STATE)
        return [*steps, tail]

    result = bench.diff(with_tail(Run().steps(3), 1.0), with_tail(Run().steps(3), 2.0))

    assert (result.first.step, result.first.phase) == (3, "state")


def test_a_relation_that_is_not_declared_in_full_never_passes(bench):
    policy = Policy(Align(kind="accumulation"))

    assert bench.diff(Run().steps(2), Run().steps(2), policy).outcome is Outcome.ABSTAIN


def test_accumulation_of_sharded_ranks_abstains_with_the_way_out(bench):
    policy = Policy(Align(kind="accumulation", microbatches=(1, 1), ranks="sharded"))

    result = bench.diff(Run().steps(2), Run().steps(2), policy)

    assert result.outcome is Outcome.ABSTAIN
    assert 'align.kind = "start"' in result.reason
