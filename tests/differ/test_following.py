"""A run that goes on is compared step by step, and parts where its finished trace does."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import LAYERS, Run, Step, judged_rows, write_trace
from windows import run as updates

from traceparity.differ.diff import diff_runs
from traceparity.differ.errors import AlignmentError
from traceparity.differ.following import FollowingDiff
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.tracefmt.framing import read_beginning
from traceparity.tracefmt.growing import GrowingTrace, follow
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Phase
from traceparity.tracefmt.source import StreamSource


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


def accumulated(*microbatches, **align):
    rules = (Rule("*", rtol=1e-5, atol=1e-6),)
    return Policy(Align(kind="accumulation", microbatches=microbatches, **align), rules)


def head_of(data):
    """How many bytes the magic and the header take."""
    source = StreamSource(io.BytesIO(data))
    _, head = read_beginning(source)
    return head.end


def follow_bytes(reference, target, policy, portion):
    """Judge a target of which so many bytes come at a time; each step when it is there and over.

    Returns:
        The first divergence, and how many steps were there when it was found.
    """
    data, growing = target.read_bytes(), target.with_name(f"growing-{target.name}")
    begin = head_of(data)
    growing.write_bytes(data[:begin])
    with open_trace(reference) as ours, follow(growing) as theirs:
        diff, before = FollowingDiff(0, ours, theirs, policy), None
        for end in range(begin, len(data) + portion, portion):
            growing.write_bytes(data[:end])
            numbers = theirs.grow()
            if numbers and before is not None and before not in numbers:
                numbers.insert(0, before)
            before = numbers[-1] if numbers else before
            for number in numbers:
                if found := diff.judge(number):
                    return found, len(theirs.steps)
    return None, len(theirs.steps)


CUTS = ([8], [4, 4], [3, 4, 1], [2, 2, 2, 2])


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_updates_of_other_micro_batches_are_judged_as_each_of_them_is_over(tmp_path_factory, data):
    """Whatever is changed is found where the finished traces part, an update later at most."""
    folder = tmp_path_factory.mktemp("a")
    left, right = data.draw(st.sampled_from(CUTS)), data.draw(st.sampled_from(CUTS))
    count = 5
    reference, target = updates(*[left] * count), updates(*[right] * count)
    change = data.draw(st.sampled_from(["nothing", "value", "cut"]))
    at = data.draw(st.integers(0, count - 2))
    if change == "value":
        rows = target[at].rows
        tensors = [n for n, row in enumerate(rows) if isinstance(row.value, np.ndarray)]
        row = data.draw(st.sampled_from(tensors))
        rows[row] = replace(rows[row], value=np.asarray(rows[row].value + 1))
    elif change == "cut":
        target[at] = updates(*[right] * at, [1, 7])[at]
    paths = [
        write_trace(folder / name, steps, capture="values")
        for name, steps in (("r.trace", reference), ("t.trace", target))
    ]
    policy = accumulated(len(left), len(right))
    whole = diff_runs(paths[0], [paths[1]], policy).first

    found, there = follow_bytes(*paths, policy, data.draw(st.sampled_from([3000, 100_000])))

    if whole is None:
        assert found is None
        return
    assert found is not None
    assert (found.step, found.phase, found.component, found.field, found.kind) == (
        whole.step, whole.phase, whole.component, whole.field, whole.kind
    )  # fmt: skip
    assert there > found.target_step + 1


def test_an_undeclared_number_of_micro_batches_cannot_be_followed(bench):
    policy = Policy(Align(kind="accumulation"))

    with pytest.raises(AlignmentError, match="--microbatches N:M"):
        follow_all(bench.write(updates([8], [8])), bench.write(updates([4, 4], [4, 4])), policy)
