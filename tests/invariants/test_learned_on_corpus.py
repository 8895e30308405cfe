"""What tp-infer learns from sound trainings finds each planted bug, and nothing in sound ones."""

from pathlib import Path

import corpus
import gloo
import loops
import pytest
import recording

from traceparity.differ.policy import Policy
from traceparity.invariants.causes import Cause
from traceparity.invariants.families import families_of
from traceparity.invariants.file import line_of
from traceparity.invariants.finding import FAMILIES
from traceparity.invariants.inference import learn_from
from traceparity.invariants.invariant import Invariant
from traceparity.verify.run_verdict import judge_run

SLOW = pytest.mark.slow
QUICK = {"zero_grad missing", "rate ten times", "weight overwritten", "moments lost"}


def learned(*references: Path) -> list[Invariant]:
    return learn_from(references, families_of((), ()), most_examples=5000)[0]


def causes(invariants: list[Invariant], trace: Path) -> tuple[Cause, ...]:
    result = judge_run([trace], Policy(), invariants=invariants, file=Path("invariants.jsonl"))
    assert result.invariants is not None
    return result.invariants.causes


def told(found: tuple[Cause, ...]) -> list[str]:
    return [
        f"step {each.first.step}, {each.first.component}: {each.first.sentence}: {each.first.seen}"
        for each in found
    ]


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=bug.name, marks=() if bug.name in QUICK else SLOW)
        for bug in corpus.BUGS
    ],
)
def test_a_bug_is_found_where_it_begins(bug, recorded):
    """One sound run of another seed is enough to learn from."""
    invariants = learned(recorded(bug.train, "", 0, bug.processes))

    found = causes(invariants, recorded(bug.train, bug.name, 3, bug.processes))

    assert len(found) == 1, told(found)
    first = found[0].first
    # What goes wrong with data shows when it is fetched, and by which sample depends on the seed.
    at_once = bug.families == "D" and first.step < bug.step
    assert first.step == bug.step or at_once, told(found)
    # Where a call is missing or too many, the order of calls of the step is what goes wrong.
    named = (*bug.component, "step") if "P" in bug.families else bug.component
    assert first.component in named, told(found)


@pytest.mark.parametrize(
    ("train", "processes"),
    [
        pytest.param(
            train,
            processes,
            id=f"{train.__module__}.{train.__name__}",
            marks=() if train is loops.train else SLOW,
        )
        for train, processes in corpus.SOUND
    ],
)
def test_another_seed_of_a_sound_training_breaks_nothing(train, processes, recorded):
    """Neither does the run itself, whatever was learned from one run or from two."""
    runs = [recorded(train, "", seed, processes) for seed in (0, 1, 2)]

    for references in (runs[:1], runs[:2]):
        invariants = learned(*references)
        for run in runs:
            assert told(causes(invariants, run)) == []


def test_an_evaluation_within_an_accumulation_is_no_part_of_it(recorded, tmp_path):
    trace = tmp_path / "evaluated.trace"
    recording.record(lambda: loops.accumulate("", 1, "evaluated in between"), trace)

    assert told(causes(learned(recorded(loops.accumulate)), trace)) == []


def test_what_is_learned_fits_on_a_page(recorded):
    invariants = learned(recorded(loops.train))

    assert 20 <= len(invariants) <= 60
    assert all(len(each.text) < 200 for each in invariants)


def test_equal_traces_give_equal_bytes(recorded):
    lines = [[line_of(each) for each in learned(recorded(loops.train))] for _ in range(2)]

    assert lines[0] == lines[1]


def test_most_families_are_learned_from_a_plain_training(recorded):
    relations = {each.relation for each in learned(recorded(loops.train))}

    assert relations >= set(FAMILIES.values()) - {"equality", "collective", "function"}


@SLOW
def test_what_one_process_teaches_holds_on_two_and_finds_what_goes_wrong_there(recorded):
    """Clipping on one rank only is an order of calls that the training alone never had."""
    invariants = learned(recorded(gloo.alone, "", 0))

    assert told(causes(invariants, recorded(gloo.train, "", 1, 2))) == []
    found = causes(invariants, recorded(gloo.train, "clipped on one rank", 3, 2))
    assert [(each.first.step, each.first.rank) for each in found] == [(0, 1)], told(found)


@SLOW
def test_replicas_are_learned_from_a_run_of_two_processes(recorded):
    relations = {each.relation for each in learned(recorded(gloo.train, "", 0, 2))}

    assert "equality" in relations


@pytest.mark.parametrize(
    ("alias", "bug"),
    [
        ("APIContainRelation", "zero_grad missing"),
        ("ConsistentOutputRelation", "escapes autocast"),
        ("ConsistentInputOutputRelation", "batch merged"),
        ("FunctionLeadRelation", "step missing"),
        ("FunctionCoverRelation", "zero_grad missing"),
        ("DistinctArgumentRelation", "workers alike"),
        ("ThresholdRelation", "too long"),
        pytest.param("ConsistencyRelation", "clipped on one rank", marks=SLOW),
    ],
)
def test_a_relation_by_its_other_name_finds_a_bug_of_its_kind(alias, bug, recorded):
    """The families behind an alias are learned alone, and find what that relation found."""
    case = next(each for each in corpus.BUGS if each.name == bug)
    families = families_of([alias], ())
    sound = recorded(case.train, "", 0, case.processes)
    invariants, _ = learn_from([sound], families, most_examples=5000)

    found = causes(invariants, recorded(case.train, case.name, 3, case.processes))

    assert {each.relation for each in invariants} <= set(families)
    assert found
    assert found[0].first.step <= case.step
