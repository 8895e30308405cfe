"""Tolerances over whole runs."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import Run, Step, perturbed

from traceparity.differ.policy import Policy, Rule
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Phase


@pytest.mark.parametrize("capture", ["sketch", "values"])
def test_small_differences_satisfy_a_relative_distance_and_large_ones_do_not(bench, capture):
    policy = Policy(rules=(Rule("*", rel_l2=1e-3),))

    def outcome(relative: float) -> Outcome:
        target = perturbed(Run().steps(3), relative)
        return bench.diff(Run().steps(3), target, policy, capture=capture).outcome

    assert outcome(1e-5) is Outcome.PASS
    assert outcome(1e-2) is Outcome.FAIL


def test_a_tolerance_needs_values_and_names_the_command_that_records_them(bench):
    policy = Policy(rules=(Rule("*", rtol=1e-3),))

    result = bench.diff(Run().steps(3), perturbed(Run().steps(3), 1e-5), policy)

    assert result.outcome is Outcome.ABSTAIN
    assert result.compared.undecided > 0
    assert "--capture values --steps 0:1 -- train.py --lr 0.1" in result.reason


def test_a_tolerance_is_judged_on_values(bench):
    policy = Policy(rules=(Rule("*", rtol=1e-3),))
    reference = Run().steps(3)

    close = bench.diff(reference, perturbed(Run().steps(3), 1e-5), policy, capture="values")
    far = bench.diff(reference, perturbed(Run().steps(3), 1e-2), policy, capture="values")

    assert close.outcome is Outcome.PASS
    assert close.compared.undecided == 0
    assert far.outcome is Outcome.FAIL


def test_a_rule_holds_for_its_sites_only(bench):
    policy = Policy(rules=(Rule("loss:*", rtol=1.0),))
    target = Run().steps(3)
    target[0].change("loss:loss:value", np.array(np.float32(1.9)))
    target[1].change("gradient:head.weight:grad", np.zeros((9, 3), np.float32))

    first = bench.diff(Run().steps(3), target, policy).first

    assert (first.step, first.phase) == (1, "gradient")


def test_a_carried_value_is_compared_under_the_same_tolerance(bench):
    policy = Policy(rules=(Rule("state:*", rel_l2=1e-3),))

    def change(steps: list[Step]) -> None:
        weight = Run().array("weight", "embed", 2) * np.float32(1.00001)
        row = replace(steps[0].rows[steps[0].find("state:embed.weight:value")], value=weight)
        steps[2].rows.insert(0, replace(row, flags=row.flags.STATEFUL))

    assert bench.changed(change, policy).outcome is Outcome.PASS
    assert bench.changed(change).outcome is Outcome.FAIL


def test_ignored_phases_may_differ(bench):
    policy = Policy(rules=(Rule("forward:*", ignore=True),))

    def change(steps: list[Step]) -> None:
        for step in steps:
            step.rows = [row for row in step.rows if row.phase != Phase.FORWARD]

    result = bench.changed(change, policy)

    assert result.outcome is Outcome.PASS
    assert result.compared.ignored > 0
