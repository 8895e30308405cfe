"""A recording that is killed at any moment can be opened and holds every finished step."""

import json
from pathlib import Path
from typing import Any

import pytest

from traceparity.tracefmt.reader import open_trace

PROGRAM = Path(__file__).with_name("killed.py")
MOMENTS = 200


def sound_steps(path: str) -> int:
    """How many steps a trace holds, counted from 0 without a gap; all of them are read."""
    if not Path(path).exists():  # a trace is created when there is something to write
        return 0
    with open_trace(path) as trace:
        assert not trace.complete
        assert [step.number for step in trace.steps] == list(range(len(trace.steps)))
        for step in trace.steps:
            assert len(trace.columns(step.number)) == sum(step.observations)
        return len(trace.steps)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_recording_loses_at_most_the_step_in_progress(commands: Any) -> None:
    """A step ends where the next one begins, so the last update told of may be unfinished."""
    done = commands.run("python", PROGRAM, commands.folder, str(MOMENTS), "7")
    assert done.returncode == 0, done.stderr

    endings = [json.loads(line) for line in done.stdout.splitlines()]

    assert len(endings) == MOMENTS
    lost = {
        ending["trace"]: (ending["updates"], steps)
        for ending in endings
        if (steps := sound_steps(ending["trace"])) < ending["updates"] - 1
    }
    assert not lost
    assert max(ending["updates"] for ending in endings) > 20, "the recordings were hardly begun"
