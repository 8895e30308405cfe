"""A process killed with SIGKILL at any moment loses at most the step that it was writing."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from killed_writer import story
from trace_story import read_step

from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.recovery import CUT_OFF

KILLS = 40


@pytest.mark.slow
def test_a_killed_writer_leaves_every_step_that_it_finished(tmp_path):
    """Real processes, killed at random moments."""
    chance, lengths = random.Random(5), []
    for kill in range(KILLS):
        path = tmp_path / f"{kill}.trace"
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("killed_writer.py")), str(path)],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        said = process.stdout.read(4)
        time.sleep(chance.random() * 0.03)
        process.kill()
        said += process.stdout.read()
        process.stdout.close()
        process.wait()
        finished = len(said) // 4

        with open_trace(path) as trace:
            steps = [step.number for step in trace.steps]
            lengths.append(len(steps))

            assert len(steps) >= finished
            assert steps == list(range(len(steps)))
            assert len(steps) <= finished + 1
            assert all(read_step(trace, number).seen == story(number).seen for number in steps)
            assert (trace.complete, trace.incomplete_reason) == (False, CUT_OFF)
            assert trace.damage == ()
    assert len(set(lengths)) > KILLS // 4
