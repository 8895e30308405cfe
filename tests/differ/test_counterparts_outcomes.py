"""Each outcome rule of a hand-written equivalence check, for resume, accumulation and any pair."""

import numpy as np
from conftest import AUTO_RESUME, RESUME_AT_3
from synthetic import SNAPSHOT, Run, Step

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.report_json import as_json
from traceparity.differ.report_text import as_text
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Phase

OTHER = np.zeros((9, 3), np.float32)


def other_weight(steps: list[Step], step: int) -> list[Step]:
    steps[step].change("optimizer:head.weight:value", OTHER)
    return steps


def test_a_reference_that_disagrees_with_itself_beats_a_target_that_differs(bench):
    """And where the reference first disagrees with itself is said, not the alphabetical path."""
    reference = bench.write(Run().steps(5))
    repeat = bench.write(other_weight(Run().steps(5), 1))
    target = bench.write(other_weight(Run().steps(5), 3))

    result = diff_runs(reference, [target], Policy(), repeat)

    assert result.outcome is Outcome.ABSTAIN
    assert "step 1, optimizer:head.weight:value" in result.reason
    # What was found of the target is no finding any more: it is not told as one.
    assert (result.first, result.divergences) == (None, ())
    assert (result.growth, result.next_commands) == ((), ())


def test_a_reference_is_compared_with_itself_under_the_policy(bench):
    """What the policy allows is no disagreement."""
    reference = bench.write(Run().steps(5))
    repeat = bench.write(other_weight(Run().steps(5), 4))
    ignoring = Policy(rules=(Rule("optimizer:head.weight:value", ignore=True),))

    assert diff_runs(reference, [reference], ignoring, repeat).outcome is Outcome.PASS


def test_the_first_divergent_step_is_named_and_not_the_last(bench):
    result = bench.diff(Run().steps(6), other_weight(Run().steps(6), 2))

    assert result.first.step == 2


def test_the_first_difference_of_a_step_is_the_first_in_time_and_not_in_the_alphabet(bench):
    def change(steps: list[Step]) -> None:
        steps[2].change("gradient:body.0.weight:grad", OTHER)
        steps[2].change("forward:head:output[0]", OTHER)

    assert bench.changed(change).first.component == "head"


def test_runs_that_start_unequal_part_in_their_starting_state(bench):
    """Which elsewhere only abstains: here the place is named."""
    result = bench.changed(lambda steps: steps[0].change("state:head.weight:value", OTHER))

    assert (result.first.step, result.first.phase, result.first.component) == (
        0, "state", "head.weight",
    )  # fmt: skip


def test_the_checkpoint_of_a_resume_is_compared_at_the_seam(bench):
    target = Run().steps(6, 3)
    target[0].change("state:optimizer[0]:exp_avg[head.weight]", OTHER)

    result = bench.diff(Run().steps(6), target, RESUME_AT_3)

    assert (result.first.step, result.first.target_step, result.first.phase) == (3, 0, "state")
    assert result.first.field == "exp_avg[head.weight]"


def test_optimizer_state_is_named_by_parameter_and_not_by_position(bench):
    target = Run().steps(6, 3)
    target[0].remove("state:optimizer[0]:exp_avg[head.weight]")

    result = bench.diff(Run().steps(6), target, RESUME_AT_3)

    assert (result.first.kind, result.first.field) == ("missing", "exp_avg[head.weight]")


def test_tied_parameters_are_compared_as_what_they_are(bench):
    def tied(steps: list[Step]) -> list[Step]:
        steps[0].add(Phase.STATE, "head.weight", "shared_with", "embed.weight", flags=SNAPSHOT)
        return steps

    same = bench.diff(tied(Run().steps(3)), tied(Run().steps(3)))
    untied = bench.diff(tied(Run().steps(3)), Run().steps(3))

    assert same.outcome is Outcome.PASS
    assert (untied.first.field, untied.first.kind) == ("shared_with", "missing")


def test_a_run_of_which_nothing_is_compared_does_not_pass(bench):
    nothing = Policy(rules=(Rule("*", ignore=True),))

    assert bench.changed(lambda steps: None, nothing).outcome is Outcome.ABSTAIN


def test_a_resumed_run_that_trained_nothing_does_not_pass(bench):
    """It loaded a checkpoint, listed its state and stopped."""
    target = Run().steps(4, 3)
    target[0].rows = [row for row in target[0].rows if row.phase == Phase.STATE]
    target[0].tail = True

    assert bench.diff(Run().steps(6), target, AUTO_RESUME).outcome is not Outcome.PASS


def test_what_one_side_could_not_observe_is_named_with_its_path(bench):
    paths = [
        bench.write(Run().steps(3), notes=[("body.1", "inside torch.compile")]),
        bench.write(Run().steps(3)),
    ]

    result = diff_runs(paths[0], paths[1:], Policy())

    assert [(each.component, each.reason) for each in result.not_observed] == [
        ("body.1", "inside torch.compile")
    ]


def test_the_relation_is_declared_and_reported_whole(bench):
    policy = Policy(Align(order="free"), (Rule("*", rtol=1e-3, atol=1e-6, symmetric=True),))

    told = bench.changed(lambda steps: None, policy, capture="values").policy.as_dict()

    assert told["align"]["order"] == "free"
    assert told["compare"] == [{"site": "*", "rtol": 1e-3, "atol": 1e-6, "symmetric": True}]


def test_two_runs_of_a_command_make_equal_reports(bench):
    paths = [bench.write(Run().steps(4)), bench.write(other_weight(Run().steps(4), 1))]
    results = [diff_runs(paths[0], paths[1:], Policy()) for _ in range(2)]

    assert as_json(results[0]) == as_json(results[1])
    assert as_text(results[0]) == as_text(results[1])
