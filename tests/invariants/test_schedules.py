"""Learned invariants about rates that begin as in the reference, and what a longer run may do."""

import functools
from pathlib import Path

import pytest
import recording
import schedules

from traceparity.differ.policy import Policy
from traceparity.invariants.families import families_of
from traceparity.invariants.inference import learn_from
from traceparity.verify.run_verdict import judge_run


@pytest.fixture(scope="module")
def found(recorded, tmp_path_factory):
    """What the hyperparameter family finds in a run, learned from one other run."""
    invariants, _ = learn_from(
        [recorded(schedules.train)], families_of(["hyperparameter"], ()), most_examples=5000
    )

    def found(trace: Path):
        result = judge_run([trace], Policy(), invariants=invariants, file=Path("i.jsonl"))
        assert result.invariants is not None
        return [(each.first.step, each.first.sentence) for each in result.invariants.causes]

    return found


@pytest.mark.parametrize(
    ("bug", "step", "sentence"),
    [
        ("decay too fast", 0, "schedulers with scheduler ExponentialLR and setting gamma"),
        ("no decay", 4, "schedulers in a step"),
        ("after each pass from then on", 4, "learning rates at an update"),
        ("set by hand", 5, "learning rates at an update"),
    ],
)
def test_a_rate_that_goes_another_way_later_is_found(bug, step, sentence, recorded, found):
    (cause,) = found(recorded(schedules.train, bug, 1))

    assert cause[0] == step, cause
    assert cause[1].startswith(sentence), cause


def test_a_longer_run_keeps_its_schedule(found, tmp_path):
    longer = tmp_path / "longer.trace"
    recording.record(functools.partial(schedules.train, "", 2, 30), longer)

    assert found(longer) == []
