"""A run that goes on is compared step by step, and parts where its finished trace does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import LAYERS, Run, Step, judged_rows, write_trace

from traceparity.differ.diff import diff_runs
from traceparity.differ.errors import AlignmentError
from traceparity.differ.following import FollowingDiff
from traceparity.differ.policy import Align, Policy
from traceparity.tracefmt.growing import GrowingTrace, follow
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Phase


def follow_all(reference, target, policy=None):
    """Judge a target as if it were being written; returns the first divergence and its step."""
    with open_trace(reference) as ours, follow(target) as theirs:
        diff = FollowingDiff(0, ours, theirs, policy or Policy())
        for number in theirs.grow():
            if found := diff.judge(number):
                return found
    return None


@pytest.mark.parametrize("policy", [Policy(), Policy(Align(kind="resume"))])
def test_equal_runs_are_equal_while_they_go_on(bench, policy):
    start = 2 if policy.align.kind == "resume" else 0
    reference, target = Run().steps(6), Run().steps(6, start)

    assert follow_all(bench.write(reference), bench.write(target), policy) is None


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_change_is_found_where_the_comparison_of_the_finished_traces_finds_it(
    tmp_path_factory, data
):
    folder = tmp_path_factory.mktemp("a")
    reference, target = Run().steps(4), Run().steps(4)
    number, at = data.draw(st.sampled_from(list(judged_rows(target))))
    step = target[number]
    if data.draw(st.booleans()):
        del step.rows[at]
    else:
        changed = step.rows[at].value
        changed = np.asarray(changed + 1) if isinstance(changed, np.ndarray) else f"not {changed}"
        step.rows[at] = replace(step.rows[at], value=changed)
    paths = [write_trace(folder / "r.trace", reference), write_trace(folder / "t.trace", target)]
    whole = diff_runs(paths[0], [paths[1]], Policy()).first

    found = follow_all(*paths)

    if found is not None:
        assert whole is not None
        assert (found.step, found.phase, found.component, found.field, found.kind) == (
            whole.step, whole.phase, whole.component, whole.field, whole.kind
        )  # fmt: skip
    elif whole is not None:
        # Only a row that lacks in the last step waits for the end of the file.
        assert whole.step == len(target) - 1
        assert len(target[-1].rows) < len(reference[-1].rows)


def split_at_scheduler(step: Step) -> tuple[Step, Step]:
    """What is in the file after the update, and what the scheduler adds."""
    at = next(i for i, row in enumerate(step.rows) if row.phase == Phase.SCHEDULER)
    return Step(step.rows[:at]), Step(step.rows[at:])


def test_an_update_is_judged_before_its_scheduler_has_stepped(bench):
    """A rate that goes another way in step 2 is found there; nothing that lacks yet is a fault."""
    steps = Run().steps(3)
    changed = Run().steps(3)
    changed[2].change("optimizer:head.weight:value", np.zeros((9, 3), np.float32))
    for run in (steps, changed):
        run[2], _ = split_at_scheduler(run[2])
    reference = bench.write(Run().steps(5))

    assert follow_all(reference, bench.write(steps, complete=False)) is None
    found = follow_all(reference, bench.write(changed, complete=False))
    assert found is not None
    assert (found.step, found.component) == (2, "head.weight")


def test_an_update_of_which_an_optimizer_has_still_to_step_is_not_judged(bench):
    """What the second optimizer uses is told when it steps."""
    steps = Run().steps(3)
    last = steps[2]
    last.rows = [row for row in last.rows if row.phase < Phase.OPTIMIZER]
    last.change("gradient:head.weight:grad", np.zeros((9, 3), np.float32))

    assert follow_all(bench.write(Run().steps(5)), bench.write(steps, complete=False)) is None


def test_a_step_beyond_the_end_of_the_reference_is_a_divergence(bench):
    reference = bench.write(Run().steps(3))
    longer = bench.write(Run().steps(5))

    found = follow_all(reference, longer)

    assert found is not None
    assert (found.step, found.kind, found.field) == (3, "extra", "step")
    cut_off = bench.write(Run().steps(3), complete=False)
    assert follow_all(cut_off, longer) is None


def test_a_run_whose_start_is_unknown_cannot_be_judged(bench):
    target = Run().steps(6, 3)
    target[0].change("state:head.weight:value", np.zeros((9, 3), np.float32))
    for layer in LAYERS:
        count = np.array(np.float32(99))
        target[0].change(f"state:optimizer[0]:step[{layer}.weight]", count)

    with pytest.raises(AlignmentError, match="--step-offset"):
        follow_all(bench.write(Run().steps(6)), bench.write(target), Policy(Align(kind="resume")))


def test_a_step_costs_the_same_however_many_came_before(bench, monkeypatch):
    """Of the steps before it none is read again."""
    count = 60
    reference, steps = bench.write(Run().steps(count)), Run().steps(count)
    for step in steps:
        step.change("data:loader[0]:worker", 7)
        step.change("loss:loss:value", np.array(np.float32(1.0)))
    target, read = bench.write(steps), []
    columns = GrowingTrace.columns
    monkeypatch.setattr(
        GrowingTrace, "columns", lambda trace, number: read.append(number) or columns(trace, number)
    )
    with open_trace(reference) as ours, follow(target) as theirs:
        diff = FollowingDiff(0, ours, theirs, Policy())
        for number in theirs.grow():
            diff.judge(number)

    assert len(read) <= count + 1
