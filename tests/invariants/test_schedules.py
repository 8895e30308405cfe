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


def judged(references: list[Path], trace: Path):
    """What the hyperparameter family finds in a run, learned from others, and how far it judged."""
    families = families_of(["hyperparameter"], ())
    invariants, _ = learn_from(references, families, most_examples=5000)
    result = judge_run([trace], Policy(), invariants=invariants, file=Path("i.jsonl"))
    assert result.invariants is not None
    return result.invariants


@pytest.fixture
def found(recorded):
    """Step and sentence of each cause in a run, learned from one other run."""

    def found(trace: Path):
        causes = judged([recorded(schedules.train)], trace).causes
        return [(each.first.step, each.first.sentence) for each in causes]

    return found


@pytest.mark.parametrize(
    ("bug", "step", "sentence"),
    [
        ("decay too fast", 0, "schedulers with scheduler ExponentialLR and setting gamma"),
        ("no decay", 4, "schedulers in a step"),
        ("after each pass from then on", 4, "learning rates at an update"),
        ("set by hand", 5, "learning rates at an update"),
        ("decays too late", 4, "learning rates as parts of the first one"),
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


def longer(train, tmp_path: Path, bug: str = "") -> Path:
    trace = tmp_path / "longer.trace"
    recording.record(functools.partial(train, bug, 2, 30), trace)
    return trace


def test_a_function_of_the_position_is_learned_and_a_departure_found_where_it_begins(recorded):
    train = schedules.by_function
    result = judged([recorded(train)], recorded(train, "falls too fast", 1))

    (cause,) = result.causes
    assert (cause.first.step, cause.first.component) == (2, "optimizer[0] group[0]")
    assert cause.first.expected == "0.96194 of the first rate after 3 steps of the scheduler"
    assert cause.first.seen == "0.925328 of the first rate after 3 steps of the scheduler"
    assert judged([recorded(train)], recorded(train, "", 1)).causes == ()


def test_a_run_of_another_length_has_a_function_of_its_own(recorded, tmp_path):
    """It may depend on the length, so nothing is said, and the report says so."""
    train = schedules.by_function
    result = judged([recorded(train)], longer(train, tmp_path))

    assert result.causes == ()
    (unjudged,) = [each for each in result.coverage if not each.events]
    assert unjudged.reason == "scheduler_steps is 30, and the invariant is about 10"


def test_a_longer_warm_up_begins_at_another_rate_and_not_from_another_base(recorded, tmp_path):
    train = schedules.by_function

    assert judged([recorded(train)], longer(train, tmp_path, "longer")).causes == ()
    (cause,) = judged([recorded(train)], recorded(train, "base rate ten times", 1)).causes
    assert (cause.first.step, cause.first.component) == (0, "optimizer[0] group[0]")
    assert cause.first.seen == "begin with a base learning rate of 1.0"


def test_what_a_scheduler_of_the_program_does_is_learned_from_two_runs(recorded):
    """Of one run nobody knows whether its rates depend on the data too."""
    train = schedules.of_its_own
    bug, one, two = recorded(train, "bug", 2), recorded(train), recorded(train, "", 1)

    assert judged([one], bug).causes == ()
    (cause,) = judged([one, two], bug).causes
    assert cause.first.step == 1
    assert judged([one, two], one).causes == ()
