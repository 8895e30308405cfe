"""The law of replicas where it is declared: after each step, or it cannot be judged."""

import gloo
import pytest
import sequences

from traceparity.differ.policy import Policy
from traceparity.differ.result import Outcome
from traceparity.invariants.laws.choice import choose
from traceparity.verify.run_verdict import judge_run


def verdict(trace):
    return judge_run([trace], Policy(), laws=choose(replicas=True, advice=False))


def test_replicas_that_stay_alike_pass(recorded):
    assert verdict(recorded(gloo.train, processes=2)).outcome is Outcome.PASS


@pytest.mark.slow
def test_replicas_that_part_fail_at_their_first_step(recorded):
    found = verdict(recorded(gloo.train, "replica corrupted", processes=2))

    first = found.laws.causes[0].first
    assert found.outcome is Outcome.FAIL
    assert (first.step, first.phase.label, first.component) == (3, "state", "2.weight")
    assert first.seen == "a change on rank 1, and none on the others"


@pytest.mark.slow
def test_parameters_that_are_averaged_now_and_then_are_no_replicas_after_each_step(recorded):
    """As advice they may meet again; who declares replicas means after each step."""
    found = verdict(recorded(gloo.local, processes=2))

    assert (found.outcome, found.laws.causes[0].first.step) == (Outcome.FAIL, 0)


@pytest.mark.slow
def test_processes_that_do_not_begin_alike_cannot_be_judged(recorded):
    found = verdict(recorded(gloo.experts, processes=2))

    assert found.outcome is Outcome.ABSTAIN
    assert "begin alike" in found.reason


@pytest.mark.slow
def test_one_process_cannot_be_judged(recorded):
    found = verdict(recorded(sequences.drifting))

    assert found.outcome is Outcome.ABSTAIN
    assert "one process only" in found.reason
