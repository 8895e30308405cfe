"""A run that stopped goes on in another trace with all that it had."""

import contextlib
import functools

import healthy_data
import pytest
import recording

from traceparity.invariants.laws.pack import LAWS
from traceparity.invariants.laws.result import judge_by_laws
from traceparity.tracefmt.reader import open_run


@pytest.fixture(scope="module")
def first(healthy):
    return healthy(healthy_data.first_half)


@pytest.mark.parametrize(
    ("bug", "law", "seen"),
    [
        ("", "", ""),
        ("optimizer not loaded", "moments-kept", "none: the state was made anew"),
        ("scheduler not loaded", "schedule-followed", "0: the scheduler begins anew"),
        ("rate overwritten", "schedule-followed", "0.001"),
    ],
)
def test_what_a_resume_forgets_is_found_at_the_seam(bug, law, seen, first, tmp_path):
    halves = [first, tmp_path / "second.trace"]
    resume = functools.partial(healthy_data.goes_on_with, str(first.parent), bug)
    recording.record(resume, halves[1])

    with contextlib.ExitStack() as stack:
        segments = [open_run(half) for half in halves]
        for traces in segments:
            for trace in traces.values():
                stack.enter_context(trace)
        causes = judge_by_laws(segments, LAWS).causes

    told = [(each.first.invariant, each.first.step, each.first.seen) for each in causes]
    assert told[:1] == ([(law, 0, seen)] if bug else [])
