"""Evidence: what was equal around the first divergence and what was not."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import STATE, Run, Seen, Step, perturbed

from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.result import DiffResult, Evidence
from traceparity.tracefmt.records import Flag, Phase

ZEROS = np.zeros((9, 3), np.float32)


def evidence(result: DiffResult, what: str) -> Evidence:
    return next(each for each in result.first.evidence if each.what == what)


def test_a_module_with_equal_inputs_and_parameters_is_told_as_such(bench):
    result = bench.changed(lambda steps: steps[3].change("forward:body.1:output[0]", ZEROS))

    assert evidence(result, "inputs").equal
    assert evidence(result, "parameters").equal
    assert evidence(result, "buffers").equal
    assert evidence(result, "settings").equal
    assert evidence(result, "before").detail == "in step 3 so far: data"


def test_a_module_with_an_unequal_input_is_told_as_such(bench):
    def change(steps: list[Step]) -> None:
        for name in ("input[0]", "output[0]"):
            steps[3].change(f"forward:body.1:{name}", ZEROS)

    result = bench.changed(change)

    assert result.first.field == "input[0]"
    assert not evidence(result, "inputs").equal


def test_functional_code_is_given_as_an_interval_between_two_sites(bench):
    result = bench.changed(lambda steps: steps[1].change("forward:body.1:input[0]", ZEROS))

    assert evidence(result, "interval").detail == (
        "the runs part between forward:body.0:output[0] (equal) and forward:body.1:input[0]"
    )


def test_a_changed_setting_is_named_with_both_values(bench):
    def change(steps: list[Step]) -> None:
        settings = {"in": 3, "out": 9, "approximate": "tanh"}
        steps[0].change("state:body.1:settings", settings)
        steps[2].change("forward:body.1:output[0]", ZEROS)

    detail = evidence(bench.changed(change), "settings").detail

    assert detail == "body.1 approximate: absent against 'tanh'"


def test_random_state_that_differs_is_told_by_generator(bench):
    def change(steps: list[Step]) -> None:
        steps[2].change("state:rng.torch:digest", "other")
        steps[2].change("forward:body.1:output[0]", ZEROS)

    found = [each for each in bench.changed(change).first.evidence if each.what == "rng"]

    assert [(each.equal, each.detail) for each in found] == [
        (True, "random state equal when the step starts: python"),
        (False, "random state differs when the step starts: torch"),
    ]


def test_an_input_overwritten_in_one_run_only_is_told(bench):
    def change(steps: list[Step]) -> None:
        at = steps[1].find("forward:body.0:output[0]")
        after = Seen(Phase.FORWARD, "body.0", "input_after[0]", ZEROS, flags=Flag.CONTEXT)
        steps[1].rows.insert(at, after)
        steps[1].change("forward:body.1:input[0]", ZEROS)

    detail = evidence(bench.changed(change), "overwritten").detail

    assert detail == "body.0 overwrote its input[0] in the target only"


def test_a_gradient_that_backward_left_equal_is_told_with_the_clipping_norms(bench):
    def norms(steps: list[Step], total: float) -> list[Step]:
        at = steps[1].find("gradient:embed.weight:grad")
        row = Seen(Phase.GRADIENT, "clip_grad_norm_", "total_norm", total, flags=Flag.CONTEXT)
        steps[1].rows.insert(at, row)
        return steps

    target = norms(Run().steps(2), 5223.5)
    target[1].change("gradient:embed.weight:grad", ZEROS)
    result = bench.diff(norms(Run().steps(2), 5.1), target)

    assert evidence(result, "backward").equal
    assert evidence(result, "clipping").detail == "clip_grad_norm_ total_norm: 5.1 against 5223.5"


def test_an_update_tells_whether_gradients_and_hyperparameters_were_equal(bench):
    result = bench.changed(lambda steps: steps[2].change("optimizer:head.weight:value", ZEROS))

    assert evidence(result, "gradients").equal
    assert evidence(result, "hyperparameters").equal


def test_state_that_was_lost_before_an_update_is_told_by_its_count(bench):
    def lost(steps):
        weight = steps[2].rows[steps[2].find("optimizer:head.weight:value")].value
        steps[2].change("optimizer:head.weight:value", weight + np.float32(0.1))
        steps[2].change("optimizer:optimizer[0]:step[head.weight]", np.array(np.float32(1)))

    first = bench.changed(lost).first

    assert first.component == "head.weight"
    (told,) = (found.detail for found in first.evidence if found.what == "optimizer_state")
    assert told.startswith("optimizer[0] counts 3 updates of head.weight after this one in the")


def test_a_checkpoint_loaded_in_one_run_only_is_told(bench):
    def change(steps: list[Step]) -> None:
        steps[2].rows[:0] = [
            Seen(Phase.STATE, "checkpoint", "load_state_dict", None, flags=Flag.CONTEXT),
            Seen(Phase.STATE, "head.weight", "value", ZEROS, flags=STATE),
        ]

    detail = evidence(bench.changed(change), "checkpoint").detail

    assert detail == "load_state_dict happened just before this step in the target only"


def test_a_counter_says_that_its_effect_may_come_later(bench):
    target = Run().steps(6, 3)
    target[0].change("state:scheduler.last_epoch:value", 0)

    result = bench.diff(Run().steps(6), target, Policy(Align(kind="resume", step_offset=3)))

    assert "later steps" in evidence(result, "schedule").detail
    assert evidence(result, "parameters").equal
    assert evidence(result, "hyperparameters").equal


@pytest.mark.parametrize("step", [1, 3])
def test_parameters_that_differ_are_named(bench, step):
    def change(steps: list[Step]) -> None:
        rows = steps[step].rows
        rows.insert(0, Seen(Phase.STATE, "head.weight", "value", ZEROS, flags=STATE))
        steps[step].change("state:rng.python:digest", "other")
        at = steps[step].find("forward:head:output[0]")
        rows[at] = replace(rows[at], value=ZEROS)

    policy = Policy(Align(phases=("forward",)))

    found = evidence(bench.changed(change, policy), "parameters")

    assert (found.equal, found.detail) == (False, "parameters differ: head.weight")


@pytest.mark.parametrize(
    ("site", "value", "whats"),
    [
        ("forward:body.1:output[0]", ZEROS, ["inputs", "parameters"]),
        ("optimizer:embed.weight:value", ZEROS, ["gradients"]),
        ("scheduler:scheduler.last_epoch:value", 9, ["gradients"]),
    ],
)
def test_what_differs_within_the_tolerance_is_not_called_different(bench, site, value, whats):
    target = perturbed(Run().steps(4), 1e-6)
    target[2].change(site, value)
    policy = Policy(rules=(Rule("*", rel_l2=1e-3),))

    result = bench.diff(Run().steps(4), target, policy)

    assert result.first.step == 2
    for what in whats:
        found = evidence(result, what)
        assert found.equal
        assert "equal within the tolerance" in found.detail
    names = ("inputs", "parameters", "optimizer_state", "gradients", "gradient")
    assert not [each for each in result.first.evidence if each.what in names and not each.equal]


def test_what_a_tolerance_cannot_tell_for_want_of_values_is_neither(bench):
    target = perturbed(Run().steps(2), 1e-6)
    target[1].change("forward:body.1:output[0]", ZEROS)
    policy = Policy(rules=(Rule("*", rtol=1e-3),))

    found = evidence(bench.diff(Run().steps(2), target, policy), "parameters")

    assert found.equal is None
    assert "does not tell whether within the tolerance: body.1.weight" in found.detail


def test_what_the_policy_ignores_still_explains(bench):
    target = Run().steps(2)
    target[0].change("state:body.1.weight:value", ZEROS)
    target[0].change("forward:body.1:output[0]", ZEROS)
    policy = Policy(rules=(Rule("state:*", ignore=True),))

    found = evidence(bench.diff(Run().steps(2), target, policy), "parameters")

    assert (found.equal, found.detail) == (False, "parameters differ: body.1.weight")
