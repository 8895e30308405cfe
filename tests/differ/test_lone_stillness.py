"""Updates that one run makes and the other one does not, too small for the tolerance to tell."""

import numpy as np
import pytest
from synthetic import STATE, Run, Step

from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Flag, Kind, Phase

CLOSE = Policy(rules=(Rule("*", rel_l2=1e-4),))
LAYERS = Run().layers


def training(moves: list[bool], layers: tuple[str, ...] = LAYERS) -> list[Step]:
    """Steps of which some move the weights of some layers by a millionth."""
    steps, moved = Run().steps(len(moves)), 0
    for step, moving in zip(steps, moves, strict=True):
        moved += moving
        for layer in LAYERS:
            size = 1 + 1e-6 * moved * (layer in layers)
            weight = Run().array("weight", layer, 0) * np.float32(size)
            step.change(f"optimizer:{layer}.weight:value", weight)
    return steps


ALIVE = [True] * 4
DEAD = [False] * 4


@pytest.mark.parametrize("dead", ["target", "reference"])
def test_a_run_whose_updates_change_nothing_is_no_run_that_trains(bench, dead):
    runs = training(ALIVE), training(DEAD)

    result = bench.diff(*(runs if dead == "target" else runs[::-1]), CLOSE)

    first = result.first
    assert (first.step, first.phase, first.component) == (0, "optimizer", "embed.weight")
    assert f"no parameter of the {dead} changes in any of 4 updates" in first.evidence[0].detail


def test_a_step_that_writes_no_parameter_at_all_is_dead_too(bench):
    silent = training(DEAD)
    for step in silent:
        for layer in LAYERS:
            step.remove(f"optimizer:{layer}.weight:value")

    result = bench.diff(training(ALIVE), silent, Policy(Align(unmatched="allow"), CLOSE.rules))

    assert (result.first.step, result.first.phase) == (0, "optimizer")


def test_updates_that_are_undone_before_the_next_step_are_as_good_as_none(bench):
    undone = training([True, *DEAD[1:]])
    for step in undone[1:]:
        for layer in LAYERS:
            weight = Run().array("weight", layer, 0)
            step.change(f"optimizer:{layer}.weight:value", weight * np.float32(1.000001))
            step.add(Phase.STATE, f"{layer}.weight", "value", weight, flags=STATE)

    first = bench.diff(training(ALIVE), undone, CLOSE).first

    assert (first.step, first.phase, first.component) == (1, "state", "embed.weight")
    assert "undone before the next step" in first.evidence[0].detail


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        (ALIVE, ALIVE),
        (DEAD, DEAD),
        (ALIVE, [False, False, False, True]),
        ([True, False, False, False], DEAD),
        ([True], [False]),
    ],
)
def test_runs_that_both_train_or_both_do_not_are_alike(bench, reference, target):
    """Nor is one update that rounds to nothing a run that does not train."""
    assert bench.diff(training(reference), training(target), CLOSE).outcome is Outcome.PASS


def test_some_parameters_that_stay_are_no_dead_run(bench):
    result = bench.diff(training(ALIVE), training(ALIVE, LAYERS[:1]), CLOSE)

    assert result.outcome is Outcome.PASS


def test_steps_without_an_update_say_nothing(bench):
    def without(steps: list[Step], what: str) -> list[Step]:
        for step in steps:
            for layer in LAYERS:
                if what == "gradient":
                    step.change(f"gradient:{layer}.weight:grad", np.zeros((9, 3), np.float32))
            if what == "skipped":
                more = {"flags": Flag.CONTEXT, "kind": Kind.MARKER}
                step.add(Phase.OPTIMIZER, "optimizer[0]", "skipped", True, **more)
        return steps

    for what in ("gradient", "skipped"):
        runs = [without(training(moves), what) for moves in (ALIVE, DEAD)]
        assert bench.diff(*runs, CLOSE).outcome is Outcome.PASS


def test_a_policy_that_leaves_parameters_out_judges_no_stillness(bench):
    left_out = Policy(rules=(*CLOSE.rules, Rule("*.weight:value", ignore=True)))
    other_phases = Policy(Align(phases=("forward", "loss")), CLOSE.rules)

    for policy in (left_out, other_phases):
        assert bench.diff(training(ALIVE), training(DEAD), policy).outcome is Outcome.PASS
