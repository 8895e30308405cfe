"""What is learned of watched functions: their calls, order, containment, arguments and results."""

import functools
from dataclasses import replace
from pathlib import Path

import calls
import pytest
import recording
import torch

from traceparity.differ.policy import Policy
from traceparity.differ.result import Outcome
from traceparity.invariants.families import ALIASES, families_of
from traceparity.invariants.file import write_invariants
from traceparity.invariants.inference import learn_from
from traceparity.verify.live_check import LiveCheck
from traceparity.verify.run_verdict import RunVerdict, judge_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    # All forks share what optimizers import; training here would start threads, which are not.
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    folder = tmp_path_factory.mktemp("watched")

    @functools.cache
    def run(*training: object, watch: tuple[str, ...] = calls.WATCHED, every: int = 1) -> Path:
        out = folder / f"{len(list(folder.iterdir()))}.trace"
        settings = {"watch": [f"calls.{name}" for name in watch], "every": every}
        recording.record(functools.partial(calls.train, *training), out, settings=settings)
        return out

    return run


@pytest.fixture(scope="module")
def learned(run):
    @functools.cache
    def learned(*relations: str):
        families = families_of(relations, ())
        return learn_from([run()], families, most_examples=5000)[0]

    return learned


def judged(invariants, trace: Path) -> RunVerdict:
    return judge_run([trace], Policy(), invariants=invariants, file=Path("invariants.jsonl"))


BUGS = (
    ("not called", 5, "smooth", "are not called", "APIContainRelation"),
    ("another argument", 0, "rescale", "100.0", "ConsistentOutputRelation"),
)
MORE_BUGS = (
    ("twice", 1, "smooth", "called 2 times", "FunctionCoverRelation"),
    ("left out", 0, "rescale", "are not called", "APIContainRelation"),
    ("too late", 0, "prepare", "are not called", "FunctionLeadRelation"),
    ("made elsewhere", 0, "rescale", "no other watched function", "APIContainRelation"),
    ("no default", 0, "prepare", "0.5", "ConsistentOutputRelation"),
    ("one tensor", 0, "prepare", "those of the call before", "DistinctArgumentRelation"),
    ("without gradients", 0, "prepare", "gradients disabled", "APIContainRelation"),
    ("raises", 0, "rescale", "raised ValueError", "APIContainRelation"),
)


@pytest.mark.parametrize(
    ("bug", "step", "component", "said", "relation"),
    [*BUGS, *(pytest.param(*bug, marks=pytest.mark.slow) for bug in MORE_BUGS)],
)
def test_what_goes_wrong_with_a_watched_function_is_found(
    bug, step, component, said, relation, run, learned
):
    """By the family alone, which other names of relations stand for too."""
    assert "function" in ALIASES[relation]

    result = judged(learned("function"), run(bug, 1))

    assert result.outcome is Outcome.FAIL
    assert result.invariants is not None
    cause, *others = result.invariants.causes
    found = [cause.first, *cause.follow]
    assert not others
    assert cause.first.step == step
    assert any(each.component == f"calls.{component}()" and said in each.seen for each in found)


@pytest.mark.slow
def test_sound_runs_keep_what_was_learned_of_one(run, learned):
    """Another seed, a longer run, another batch size, a part of the steps."""
    invariants = learned()

    for target in (run("", 1), run("", 2, 4), run("", 3, 2, 6), run("", 4, 3, every=3)):
        result = judged(invariants, target)
        assert result.outcome is Outcome.PASS, result.reason


def test_calls_order_and_containment_are_lines_that_people_read(learned):
    """Functions of which the same holds share a line."""
    said = {each.text for each in learned("function")}

    assert (
        "watched calls with function calls.Trainer.update and part backward, calls.rescale,"
        " forward or update: contain this part"
    ) in said
    assert (
        "watched functions and passes, from one update to the next, with watch"
        " calls.Trainer.evaluate, calls.Trainer.update, calls.prepare, calls.rescale, calls.smooth"
        " and when within an epoch: come in the order calls.smooth, calls.prepare,"
        " calls.Trainer.update, forward, backward, calls.rescale, clip_grad_norm_,"
        " optimizer[0].step"
    ) in said
    assert len(said) < 30


def test_a_recording_without_the_calls_is_no_evidence_for_them(run, learned):
    result = judged(learned(), run("", 1, watch=("smooth",)))

    assert result.outcome is Outcome.ABSTAIN
    assert "calls.prepare were not recorded; record the run with --watch" in result.reason


def test_functions_that_cannot_be_watched_teach_nothing_and_are_not_judged(run, learned):
    """They may well be called: nobody has looked."""
    trace = run("", 0, watch=("smooth", "nope", "Trainer"))
    found, evidence = learn_from([trace], families_of(["function"], ()), most_examples=5000)

    assert found
    assert all("nope" not in each.text for each in found)
    assert set(evidence.unseen) == {"calls.nope", "calls.Trainer"}
    assert "is a class" in evidence.unseen["calls.Trainer"]
    renamed = [
        replace(each, precondition={**each.precondition, "function": ("calls.Trainer",)})
        for each in learned("function")
        if each.template == "function.count"
    ][:1]
    result = judged(renamed, trace)
    assert result.outcome is Outcome.ABSTAIN
    assert "calls.Trainer is a class" in result.reason


def test_a_check_while_training_watches_what_its_invariants_speak_of(learned, tmp_path):
    """And nothing else that is called a function."""
    file = tmp_path / "invariants.jsonl"
    write_invariants(file, learned())

    assert set(LiveCheck(str(file)).watched) == {f"calls.{name}" for name in calls.WATCHED}
