"""Golden traces: archived references, judged and rewritten."""

import sys

import fsspec
import pytest

from traceparity.differ.result import Outcome
from traceparity.verify.errors import CaseFileError

pytestmark = pytest.mark.slow

GOLDEN = 'reference = { trace = "golden.trace" }'
OLD = '\'{\\"torch\\": \\"1.0\\"}\''


def test_a_golden_trace_is_recorded_by_update_and_then_holds(cases):
    lines = (GOLDEN, 'target = "TRAIN"')
    missing = cases.one("compare", *lines)
    made = cases.one("compare", *lines, updating=True)
    held = cases.one("compare", *lines)
    broken = cases.one("compare", GOLDEN, 'target = "TRAIN --fault 2"')

    assert "tp-verify --update records it" in missing.verdict.reason
    assert (missing.outcome, made.outcome) == (Outcome.ERROR, Outcome.PASS)
    assert made.updated == cases.folder / "golden.trace"
    assert (held.outcome, broken.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert [played.role for played in held.played] == ["target"]


def test_update_says_what_changed_and_leaves_alone_what_did_not(cases):
    cases.one("compare", GOLDEN, 'target = "TRAIN"', updating=True)
    before = (cases.folder / "golden.trace").read_bytes()

    same = cases.one("compare", GOLDEN, 'target = "TRAIN"', updating=True)
    assert same.updated is None
    assert (cases.folder / "golden.trace").read_bytes() == before

    changed = cases.one("compare", GOLDEN, 'target = "TRAIN --fault 2"', updating=True)
    assert changed.updated
    assert "the runs part at step 2, optimizer:head.weight:value" in changed.verdict.reason
    assert cases.one("compare", GOLDEN, 'target = "TRAIN --fault 2"').outcome is Outcome.PASS


def test_a_run_that_fails_leaves_the_golden_trace_alone(cases):
    cases.one("compare", GOLDEN, 'target = "TRAIN"', updating=True)
    before = (cases.folder / "golden.trace").read_bytes()

    failed = cases.one("compare", GOLDEN, 'target = "TRAIN --status 1"', updating=True)

    assert failed.outcome is Outcome.ERROR
    assert (cases.folder / "golden.trace").read_bytes() == before


def test_a_golden_trace_of_another_torch_says_so_first_and_has_a_policy_of_its_own(cases):
    old = f'target = "TRAIN --versions {OLD}"'
    cases.one("compare", GOLDEN, old, updating=True)
    lines = ('target = "TRAIN --fault 2"',)

    strict = cases.one("compare", GOLDEN, *lines)
    assert strict.outcome is Outcome.FAIL
    first = "the reference was recorded elsewhere (torch 1.0 against 2.13.0); the runs part"
    assert strict.verdict.reason.startswith(first)
    assert [each.name for each in strict.verdict.elsewhere] == ["torch"]

    elsewhere = '{ compare = [{ site = "optimizer:*", ignore = true }] }'
    reference = f'reference = {{ trace = "golden.trace", elsewhere = {elsewhere} }}'
    assert cases.one("compare", reference, *lines).outcome is Outcome.PASS
    # At home the case's own policy holds.
    cases.one("compare", reference, 'target = "TRAIN"', updating=True)
    assert cases.one("compare", reference, *lines).outcome is Outcome.FAIL


def test_a_golden_reference_of_a_resume_names_the_command_that_records_it(cases):
    reference = 'reference = { trace = "golden.trace", command = "TRAIN --steps 5" }'
    lines = (
        reference,
        'save = "TRAIN --steps 2 --out {work}"',
        'resume = "TRAIN --steps 5 --resume {save}/last.json"',
    )
    made = cases.one("resume", *lines, updating=True)
    held = cases.one("resume", *lines)

    assert (made.outcome, held.outcome) == (Outcome.PASS, Outcome.PASS)
    assert [played.role for played in held.played] == ["save", "resume"]
    silent = (reference.replace(', command = "TRAIN --steps 5"', ""), *lines[1:])
    assert "nothing says how" in cases.one("resume", *silent, updating=True).verdict.reason


def test_two_archived_references_that_disagree_leave_nothing_to_judge(cases):
    for name, options in (("a", ""), ("b", " --fault 1")):
        line = f'reference = {{ trace = "{name}.trace" }}'
        cases.one("compare", line, f'target = "TRAIN{options}"', updating=True)
    pair = 'reference = { trace = "a.trace", repeat = "b.trace" }'

    case = cases.one("compare", pair, 'target = "TRAIN --fault 2"')

    assert case.outcome is Outcome.ABSTAIN
    assert "disagrees with its repetition" in case.verdict.reason


def test_a_reference_that_lies_elsewhere_is_read_and_never_rewritten(cases):
    """Here in memory, as fsspec knows it; a URL of a web server or a bucket is no other thing."""
    cases.one("compare", GOLDEN, 'target = "TRAIN"', updating=True)
    memory = fsspec.filesystem("memory")
    memory.pipe("/golden.trace", (cases.folder / "golden.trace").read_bytes())
    remote = GOLDEN.replace("golden.trace", "memory://golden.trace")

    assert cases.one("compare", remote, 'target = "TRAIN"').outcome is Outcome.PASS
    assert cases.one("compare", remote, 'target = "TRAIN --fault 1"').outcome is Outcome.FAIL
    update = cases.one("compare", remote, 'target = "TRAIN"', updating=True)
    assert "memory://golden.trace lies elsewhere" in update.verdict.reason
    missing = cases.one("compare", remote.replace("golden", "none"), 'target = "TRAIN"')
    assert missing.outcome is Outcome.ERROR


def test_a_golden_trace_that_was_cut_off_is_told_before_anything_runs(cases):
    cases.one("compare", GOLDEN, 'target = "TRAIN"', updating=True)
    path = cases.folder / "golden.trace"
    path.write_bytes(path.read_bytes()[:-500])

    case = cases.one("compare", GOLDEN, 'target = "TRAIN"')

    assert case.outcome is Outcome.ERROR
    assert "golden.trace is not whole: the recording was cut off" in case.verdict.reason
    assert case.played == ()


def test_one_golden_trace_is_not_recorded_by_two_cases(cases):
    text = '[[case]]\nname = "{}"\nkind = "compare"\n{}\ntarget = "TRAIN"\n'
    same = GOLDEN.replace("golden", "./golden")
    two = text.format("one", GOLDEN) + text.format("two", same)

    with pytest.raises(CaseFileError, match="'one' and 'two' would both write"):
        cases.run(two, updating=True)
    assert not (cases.folder / "golden.trace").exists()


def test_there_must_be_something_to_update(cases):
    with pytest.raises(CaseFileError, match="no case has an archived reference"):
        cases.one("repeat", f'command = "{sys.executable}"', updating=True)
