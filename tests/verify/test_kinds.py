"""The kinds of cases, each with what passes, what fails and what cannot be judged."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import TRAIN

from traceparity.differ.policy import Policy
from traceparity.differ.result import Outcome
from traceparity.verify.case import Case
from traceparity.verify.execution import Execution, Process
from traceparity.verify.stage import Ended, Played, Stage

RESUME = (
    'reference = "TRAIN --steps 5 --out {work}"',
    'save = "TRAIN --steps 2 --out {work}"',
)
GO_ON = 'resume = "TRAIN --steps 5 --resume {save}/last.json --out {work}'


def reason(case) -> str:
    return f"{case.outcome.value}: {case.verdict.reason}"


def test_a_sound_resume_passes_with_three_processes(cases):
    case = cases.one("resume", *RESUME, f'{GO_ON}"')

    assert case.outcome is Outcome.PASS, case.verdict.reason
    assert [played.role for played in case.played] == ["reference", "save", "resume"]
    assert len({played.execution.pid for played in case.played}) == 3
    assert case.verdict.comparison.alignment.step_offset == 2


def test_a_resume_that_forgets_the_optimizer_fails_at_the_seam(cases):
    case = cases.one("resume", *RESUME, f'{GO_ON} --forget"')

    first = case.verdict.comparison.first
    assert case.outcome is Outcome.FAIL
    assert (first.step, first.part, first.component) == (2, 2, "optimizer[0]")


def test_a_saving_run_that_is_no_beginning_of_the_reference_fails_where_it_parts(cases):
    """The checkpoint is wrong before anything was resumed."""
    save = 'save = "TRAIN --steps 2 --fault 1 --out {work}"'
    case = cases.one("resume", RESUME[0], save, f'{GO_ON}"')

    first = case.verdict.comparison.first
    assert case.outcome is Outcome.FAIL
    assert (first.step, first.part) == (1, 1)


def test_a_run_that_begins_from_scratch_has_not_resumed(cases):
    """It equals the reference from the first step on, and yet proves nothing."""
    case = cases.one("resume", *RESUME, f'{GO_ON} --from-scratch"')

    assert case.outcome is Outcome.FAIL
    assert "began at step 0" in case.verdict.reason


def test_a_declared_offset_is_held_to(cases):
    right = cases.one("resume", *RESUME, f'{GO_ON}"', "step_offset = 2")
    wrong = cases.one("resume", *RESUME, f'{GO_ON}"', "step_offset = 3")

    assert (right.outcome, wrong.outcome) == (Outcome.PASS, Outcome.FAIL)


def test_a_missing_checkpoint_is_an_error_before_the_resume_runs(cases):
    case = cases.one("resume", RESUME[0], 'save = "TRAIN --steps 2"', f'{GO_ON}"')

    assert case.outcome is Outcome.ERROR
    assert "{save}/last.json, which save did not write" in case.verdict.reason
    assert [played.role for played in case.played] == ["reference", "save"]


def test_a_checkpoint_may_have_spaces_and_is_not_what_its_path_begins_with(tmp_path):
    """In a list, an option or a script for a shell a path ends where a name could go on."""
    script = "touch '{work}/a' && mkdir '{work}/c d' && touch '{work}/c d/e,f'"
    save = ("bash", "-c", f"{script} && {TRAIN}")
    case = Case("it", "resume", {"save": save}, Policy(), timeout=60)
    stage = Stage(case, tmp_path, tmp_path, threading.Event())
    stage.run("save")

    def missing(*words: str) -> bool:
        stage.case = replace(case, commands={"resume": words})
        try:
            stage.expect_files("resume", "save")
        except Ended as ended:
            return "which save did not write" in ended.verdict.reason
        return False

    assert missing("x", "{save}/b")
    assert missing("x", "{save}/a b/last")
    assert missing("x", "--resume={save}/a b/last")
    assert missing("bash", "-c", "x {save}/b --then {save}/a")
    assert not missing("x", "{save}/c d/e,f")
    assert not missing("bash", "-c", "x '{save}/c d/e,f' --then {save}/a")
    assert not missing("bash", "-c", "x {save}/a b/last")
    assert not missing("x", "--all={save}/a,{save}/a", "{save}/a --then b/last")


def test_a_resume_that_does_not_name_the_saved_folder_is_noted(cases):
    (cases.folder / "old.json").write_text(json.dumps({"step": 2}))
    case = cases.one("resume", *RESUME, 'resume = "TRAIN --steps 5 --resume old.json"')

    assert "does not name {save}" in case.verdict.notes[0]


def test_a_reference_that_disagrees_with_itself_abstains_before_the_target_runs(cases):
    case = cases.one(
        "compare",
        'reference = "TRAIN --noise 1e-3"',
        'target = "TRAIN"',
        "repeat_reference = true",
    )

    assert case.outcome is Outcome.ABSTAIN
    assert "optimizer:head.weight:value" in case.verdict.reason
    assert [played.role for played in case.played] == ["reference", "reference-2"]


def test_a_reference_that_agrees_with_itself_is_run_as_often_as_asked(cases):
    lines = ('reference = "TRAIN"', 'target = "TRAIN --fault 2"', "repeat_reference = 3")
    case = cases.one("compare", *lines)

    assert case.outcome is Outcome.FAIL
    roles = ["reference", "reference-2", "reference-3", "target"]
    assert [played.role for played in case.played] == roles


@pytest.mark.parametrize(
    ("role", "fault", "said"),
    [
        ("reference", "--status 3", "reference: it ended with exit status 3"),
        ("target", "--status 3", "target: it ended with exit status 3"),
        ("target", "--no-trace", "no process recorded itself"),
        ("target", "--session other", "is not of this execution"),
    ],
)
def test_a_command_that_cannot_be_judged_is_an_error_with_its_last_words(role, fault, said, cases):
    commands = {"reference": "TRAIN", "target": "TRAIN"} | {role: f"TRAIN {fault}"}
    case = cases.one("compare", *(f'{name} = "{text}"' for name, text in commands.items()))

    assert case.outcome is Outcome.ERROR
    assert said in case.verdict.reason
    assert case.verdict.reason.endswith("the last line of its stderr: a warning")


def test_a_command_that_hangs_is_an_error(cases):
    case = cases.one("check", 'command = "TRAIN --hang"', "timeout = 1")

    assert reason(case).startswith("ERROR: command: it took longer than 1 s")


def test_what_an_earlier_run_left_is_never_judged(cases):
    """The same folder, and a command that now writes nothing."""
    good = cases.one("check", 'command = "TRAIN --out {work}"')
    silent = cases.one("check", 'command = "TRAIN --no-trace"')

    assert (good.outcome, silent.outcome) == (Outcome.PASS, Outcome.ERROR)
    assert not (cases.folder / "parity.verify" / "it" / "command" / "last.json").exists()


def test_repeat_tells_whether_a_run_is_deterministic(cases):
    equal = cases.one("repeat", 'command = "TRAIN"', "times = 3")
    noisy = cases.one("repeat", 'command = "TRAIN --noise 1e-3"')

    assert (equal.outcome, len(equal.played)) == (Outcome.PASS, 3)
    assert (noisy.outcome, len(noisy.played)) == (Outcome.FAIL, 2)


def test_a_policy_may_be_a_preset_a_file_or_a_table(cases):
    (cases.folder / "mine.toml").write_text('[[compare]]\nsite = "*"\nignore = true\n')
    lines = ('reference = "TRAIN"', 'target = "TRAIN --fault 1"')
    table = '{ compare = [{ site = "optimizer:*", ignore = true }, { site = "state:*" }] }'

    assert cases.one("compare", *lines, 'policy = "exact"').outcome is Outcome.FAIL
    assert cases.one("compare", *lines, 'policy = "mine.toml"').outcome is Outcome.ABSTAIN
    assert cases.one("compare", *lines, f"policy = {table}").outcome is Outcome.PASS


def test_coverage_and_check_judge_one_run(cases):
    covered = 'coverage = { policy = "exactly_once", expected = "range(0, %d)", scope = "trace" }'
    good = cases.one("coverage", 'command = "TRAIN --steps 4"', covered % 16)
    short = cases.one("coverage", 'command = "TRAIN --steps 4"', covered % 17)
    broken = cases.one("check", 'command = "TRAIN --fault 1 --nonfinite"')

    assert [case.outcome for case in (good, short, broken)] == [
        Outcome.PASS, Outcome.FAIL, Outcome.FAIL
    ]  # fmt: skip
    assert "optimizer:head.weight:value" in broken.verdict.reason


def test_a_law_that_a_case_declares_is_judged(cases):
    """One process has no other one whose samples it could train on."""
    case = cases.one("check", 'command = "TRAIN"', 'laws = { ranks-disjoint = "verdict" }')

    assert case.outcome is Outcome.ABSTAIN
    assert "the law ranks-disjoint cannot be judged" in case.verdict.reason


def test_samples_of_an_unknown_universe_abstain(cases):
    covered = 'coverage = { policy = "exactly_once", scope = "trace" }'

    case = cases.one("coverage", 'command = "TRAIN"', covered)

    assert case.outcome is Outcome.ABSTAIN


def test_an_accumulation_is_held_to_the_declared_micro_batches(cases):
    lines = ('reference = "TRAIN"', 'target = "TRAIN"', "microbatches = %s")
    right = cases.one("accumulation", *lines[:2], lines[2] % "{ reference = 1, target = 1 }")
    wrong = cases.one("accumulation", *lines[:2], lines[2] % "{ reference = 1, target = 4 }")

    assert right.outcome is Outcome.PASS, right.verdict.reason
    assert wrong.outcome is Outcome.FAIL
    assert "micro_batches" in wrong.verdict.reason


def test_a_checkpoint_that_cannot_be_read_is_an_error_with_the_cause(cases):
    """The resumed process says what is wrong; nothing is judged."""
    (cases.folder / "broken.json").write_text("{")
    case = cases.one("resume", *RESUME, 'resume = "TRAIN --resume {root}/broken.json"')

    assert case.outcome is Outcome.ERROR
    assert "resume: it ended with exit status 1" in case.verdict.reason
    assert "JSONDecodeError" in case.verdict.reason


def test_an_offset_behind_the_end_of_the_reference_abstains(cases):
    case = cases.one("resume", *RESUME, f'{GO_ON}"', "step_offset = 50")

    assert case.outcome is Outcome.ABSTAIN
    assert "no step of the reference" in case.verdict.reason


def test_one_process_cannot_stand_for_two_commands(cases, tmp_path):
    """By pid and start time: a pid alone may be given out again."""
    stage = Stage(Case("it", "resume", {}, None), tmp_path, tmp_path, None)
    process = Process("host", 17, 1.0)
    paths = (tmp_path / "a.trace", tmp_path / "out", tmp_path / "err")
    stage.played += [
        Played(role, Execution(("x",), *paths, processes=(process,))) for role in ("save", "resume")
    ]

    with pytest.raises(Ended) as ended:
        stage._prove_distinct()
    assert "save and resume were recorded by one process, 17" in ended.value.verdict.reason


def test_commands_run_where_and_with_what_the_case_says(cases):
    script = "import os, sys; sys.exit(repr((os.getcwd(), os.environ['PLACE'])))"
    (cases.folder / "show.py").write_text(script)
    case = cases.one(
        "check",
        'command = ["python", "{root}/show.py"]',
        'cwd = "{work}"',
        'environment = { PLACE = "{work}/x" }',
    )

    work = cases.folder / "parity.verify" / "it" / "command"
    assert repr((str(work), f"{work}/x")) in case.verdict.reason
    assert case.played[0].execution.environment == ("PLACE",)


def test_the_folder_of_a_case_lies_beside_the_case_file(cases):
    case = cases.one("check", 'command = "TRAIN"')

    assert case.played[0].execution.trace == cases.folder / "parity.verify/it/command.trace"
    assert Path(cases.folder / "parity.verify/.gitignore").exists()
