"""A target in several parts: each goes on where the one before stopped, and none is left out."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import Run, Step

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy
from traceparity.differ.report_json import as_dict
from traceparity.differ.report_text import as_text
from traceparity.differ.result import DiffResult, Outcome
from traceparity.tracefmt.records import Phase


@pytest.fixture
def compare(bench):
    def compare(*parts: list[Step], killed: tuple[int, ...] = (), **align: object) -> DiffResult:
        reference = bench.write(Run().steps(8))
        paths = [
            bench.write(steps, complete=number not in killed)
            for number, steps in enumerate(parts, 1)
        ]
        return diff_runs(reference, paths, Policy(Align(**align)))

    return compare


def part(start: int, stop: int) -> list[Step]:
    return Run().steps(stop, start)


def test_parts_that_follow_one_another_pass_and_say_where_each_begins(compare):
    result = compare(part(0, 3), part(3, 6), part(6, 8))

    assert result.outcome is Outcome.PASS
    assert result.compared.steps == 8
    assert result.notes == (
        "part 2 of the target begins at reference step 3 (parameter digest)",
        "part 3 of the target begins at reference step 6 (parameter digest)",
    )


def test_a_part_may_begin_at_an_earlier_checkpoint(compare):
    assert compare(part(0, 5), part(3, 8)).outcome is Outcome.PASS
    assert compare(part(0, 5), part(3, 8), killed=(1,)).outcome is Outcome.PASS


def test_the_first_part_may_be_a_resume_itself(compare):
    result = compare(part(2, 4), part(4, 8), kind="resume")

    assert result.outcome is Outcome.PASS
    assert result.alignment.step_offset == 2


def test_steps_that_no_part_has_abstain(compare):
    result = compare(part(0, 3), part(5, 8))

    assert result.outcome is Outcome.ABSTAIN
    assert "no part of the target has steps 3 to 4 of the reference" in result.reason


def test_a_last_part_that_stops_early_fails_with_the_missing_step(compare):
    result = compare(part(0, 3), part(3, 6))

    assert result.outcome is Outcome.FAIL
    assert (result.first.step, result.first.kind, result.first.part) == (6, "missing", 2)


def test_a_killed_last_part_abstains(compare):
    assert compare(part(0, 3), part(3, 6), killed=(2,)).outcome is Outcome.ABSTAIN


def test_a_part_in_the_middle_that_differs_is_named_with_its_own_step(compare):
    middle = part(3, 6)
    middle[1].change("gradient:head.weight:grad", np.zeros((9, 3), np.float32))

    result = compare(part(0, 3), middle, part(6, 8))

    assert (result.first.step, result.first.target_step, result.first.part) == (4, 1, 2)
    assert "step 4 (target step 1 of part 2), gradient:head.weight:grad" in result.reason
    assert "(target step 1 of part 2)" in as_text(result)
    assert as_dict(result)["first_divergence"]["part"] == 2
    assert any("/3.trace --step 1" in command for command in result.next_commands)


def test_weights_that_a_part_did_not_restore_are_found_where_the_one_before_ended(compare):
    second = part(3, 8)
    for row in list(second[0].rows):
        if row.phase == Phase.STATE and isinstance(row.value, np.ndarray):
            second[0].change(row.site, np.full(row.value.shape, 77, row.value.dtype))

    result = compare(part(0, 3), second)

    assert result.outcome is Outcome.FAIL
    assert (result.first.step, result.first.target_step) == (3, 0)
    assert result.first.phase == "state"
    assert "part 2 of the target begins at reference step 3 (the part before" in result.notes[0]


def test_after_a_part_that_was_cut_off_a_start_that_is_unknown_abstains(compare):
    second = part(3, 8)
    for row in list(second[0].rows):
        if row.phase == Phase.STATE and isinstance(row.value, np.ndarray):
            second[0].change(row.site, np.full(row.value.shape, 77, row.value.dtype))

    result = compare(part(0, 3), second, killed=(1,))

    assert result.outcome is Outcome.ABSTAIN
    assert "part 2: no step of the reference starts with the target's parameters" in result.reason


def test_where_several_steps_fit_the_end_of_the_part_before_decides(bench):
    def still(steps: list[Step]) -> list[Step]:
        for step in steps:
            step.rows = [row for row in step.rows if not row.field.startswith("step[")]
            for at, row in enumerate(step.rows):
                if row.field == "value" and row.component.endswith(".weight"):
                    step.rows[at] = replace(row, value=np.ones((9, 3), np.float32))
                if row.component == "scheduler.last_epoch":
                    step.rows[at] = replace(row, value=0)
        return steps

    paths = [bench.write(still(part(*ends))) for ends in ((0, 8), (0, 3), (3, 8))]

    result = diff_runs(paths[0], paths[1:], Policy())

    assert result.outcome is Outcome.PASS
    assert any("(the part before ended there)" in note for note in result.notes)


def test_a_repeated_reference_that_stops_early_judges_nobody(bench):
    reference, repeat = bench.write(Run().steps(4)), bench.write(Run().steps(3))

    result = diff_runs(reference, [reference], Policy(), repeat)

    assert result.outcome is Outcome.ABSTAIN
    assert "disagrees with its repetition" in result.reason
    assert "step 3" in result.reason


def test_a_repetition_that_was_cut_off_judges_nobody(bench):
    reference = bench.write(Run().steps(4))
    repeat = bench.write(Run().steps(3), complete=False)

    result = diff_runs(reference, [reference], Policy(), repeat)

    assert result.outcome is Outcome.ABSTAIN
    assert "cannot be judged" in result.reason


def test_a_repetition_is_compared_from_the_start_although_the_target_is_resumed(bench):
    reference, repeat = bench.write(Run().steps(6)), bench.write(Run().steps(6))
    resumed = bench.write(part(3, 6))

    result = diff_runs(reference, [resumed], Policy(Align(kind="resume")), repeat)

    assert result.outcome is Outcome.PASS
