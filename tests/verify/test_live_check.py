"""A run is checked while it trains, by what good runs keep or by the built-in laws."""

from pathlib import Path

import numpy as np
import pytest
from synthetic import STATE, Run, Step, write_trace

from traceparity.invariants.errors import InvariantError
from traceparity.invariants.families import families_of
from traceparity.invariants.file import write_invariants
from traceparity.invariants.inference import learn_from
from traceparity.tracefmt.growing import follow
from traceparity.tracefmt.records import Phase
from traceparity.verify.live_check import BUILTIN, LiveCheck

UNCLEARED = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100_000):
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
"""


def written_at(steps: list[Step], number: int) -> list[Step]:
    """Something writes to the head's weight before a step."""
    row = Step()
    row.add(Phase.STATE, "head.weight", "value", np.zeros((9, 3), np.float32), flags=STATE)
    steps[number].rows[:0] = row.rows
    return steps


def said(check: LiveCheck, path: Path) -> list[str]:
    """What the judge of a process says of each step, in order, until it objects."""
    with follow(path) as trace:
        trace.grow()
        judge = check.judge_of(0, trace)
        found = [judge.judge(trace, each.number, finished=True) for each in trace.steps]
    return [text for text in found if text is not None]


@pytest.fixture
def learned(tmp_path: Path) -> str:
    good = write_trace(tmp_path / "good.trace", Run().steps(6))
    found, _ = learn_from([good], families_of((), ()), most_examples=None)
    write_invariants(tmp_path / "invariants.jsonl", found)
    return str(tmp_path / "invariants.jsonl")


def test_the_first_step_that_breaks_an_invariant_is_said(learned, tmp_path):
    broken = write_trace(tmp_path / "run.trace", written_at(Run().steps(6), 3))

    texts = said(LiveCheck(learned), broken)

    assert len(texts) == 1
    assert texts[0].startswith("step 3, state, head.weight: parameters and buffers between two")


def test_a_good_run_is_left_alone(learned, tmp_path):
    assert said(LiveCheck(learned), tmp_path / "good.trace") == []


def test_the_end_gives_the_verdict_of_an_offline_check(learned, tmp_path):
    assert LiveCheck(learned).conclude(tmp_path / "good.trace").outcome.value == "PASS"


def test_a_step_that_is_not_finished_is_not_judged_yet(learned, tmp_path):
    broken = write_trace(tmp_path / "run.trace", written_at(Run().steps(6), 0))

    with follow(broken) as trace:
        trace.grow()
        judge = LiveCheck(learned).judge_of(0, trace)

        assert judge.judge(trace, 0, finished=False) is None


def test_a_file_that_is_none_is_said_before_the_run_begins(tmp_path):
    with pytest.raises(InvariantError, match=r"nothing\.jsonl"):
        LiveCheck(str(tmp_path / "nothing.jsonl"))


def test_only_the_phases_that_the_invariants_are_about_are_needed(tmp_path):
    good = write_trace(tmp_path / "good.trace", Run().steps(6))
    found, _ = learn_from([good], families_of(["bounds"], ()), most_examples=None)
    write_invariants(tmp_path / "few.jsonl", found)

    phases = LiveCheck(str(tmp_path / "few.jsonl")).phases

    assert Phase.STATE in phases
    assert Phase.LOSS in phases
    assert Phase.BACKWARD not in phases
    assert set(LiveCheck(BUILTIN).phases) == set(Phase)


@pytest.mark.slow
def test_a_training_that_breaks_a_law_is_stopped(commands):
    """Gradients are never cleared: the laws say so at once, and the program ends."""
    script = commands.folder / "train.py"
    script.write_text(UNCLEARED)

    done = commands.run(
        "tp-record", "-o", commands.folder / "run.trace", "--check", BUILTIN, "--fail-fast",
        "--", script,
    )  # fmt: skip

    assert done.returncode == 121, done.stderr
    assert "gradients-cleared" in done.stderr
    assert "the program is stopped" in done.stderr
