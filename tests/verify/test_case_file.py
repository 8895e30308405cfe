"""Case files: what they may say, and that every mistake names file, line and key."""

import re

import pytest

from traceparity.differ.policy import Rule
from traceparity.tracefmt.errors import TraceparityError
from traceparity.verify.case_file import read_cases

RESUME = """
[[case]]
name = "first"
kind = "resume"
reference = "train.py --steps 100 --out {work}"
save = ["train.py", "--steps", "50", "--out", "{work}"]
resume = "train.py --resume '{save}/last one.pt'"
"""
COVERAGE = (
    '[[case]]\nkind = "coverage"\nname = "x"\ncommand = "a"\ncoverage = { policy = "exactly_once", '
)
CHECK = '[[case]]\nkind = "check"\nname = "x"\n'
ARCHIVED = '[[case]]\nkind = "compare"\nname = "x"\nreference = { trace = "a" }\ntarget = "b"\n'


def read(tmp_path, text):
    path = tmp_path / "parity.toml"
    path.write_text(text)
    return read_cases(path)


def test_commands_are_texts_or_lists_of_words(tmp_path):
    (case,) = read(tmp_path, RESUME).cases

    assert case.commands["save"] == ("train.py", "--steps", "50", "--out", "{work}")
    assert case.commands["resume"] == ("train.py", "--resume", "{save}/last one.pt")
    assert case.policy.align.kind == "resume"


def test_defaults_hold_where_a_case_says_nothing_else(tmp_path):
    defaults = """
[defaults]
timeout = 5
environment = { A = "1", B = "2" }
record = { capture = "digest" }
repeat_reference = true
"""
    more = 'environment = { B = "3" }\n[[case]]\nname = "again"\nkind = "repeat"\ncommand = "x.py"'
    first, second = read(tmp_path, defaults + RESUME + more).cases

    assert (first.timeout, first.repetitions, first.settings.capture) == (5.0, 2, "digest")
    assert first.environment == {"A": "1", "B": "3"}
    assert second.repetitions == 2


def test_an_accumulation_is_close_unless_it_says_otherwise(tmp_path):
    body = """
[[case]]
name = "parts"
kind = "accumulation"
reference = "train.py"
target = "train.py --accumulate 4"
microbatches = { reference = 1, target = 4 }
loss = "mean"
"""
    (case,) = read(tmp_path, body).cases
    (exact,) = read(tmp_path, body + 'policy = "exact"').cases

    align = case.policy.align
    assert (align.kind, align.microbatches, align.loss) == ("accumulation", (1, 4), "mean")
    assert case.policy.rules[0].rel_l2
    assert exact.policy.rules == ()


def test_an_archived_reference_keeps_fingerprints_where_they_are_enough(tmp_path):
    body = """
[[case]]
name = "golden"
kind = "compare"
reference = { trace = "golden.trace", elsewhere = "exact" }
target = "train.py"
"""
    (case,) = read(tmp_path, body).cases
    (close,) = read(tmp_path, body + 'policy = "close"').cases

    assert case.archive.trace == tmp_path / "golden.trace"
    assert (case.settings.capture, close.settings.capture) == ("digest", "sketch")


def test_a_policy_in_a_table_has_rules_as_a_file_has(tmp_path):
    body = '[[case.policy.compare]]\nsite = "loss:*"\nrel_l2 = 0.5\n'
    (case,) = read(tmp_path, RESUME + body).cases

    assert case.policy.rules == (Rule(site="loss:*", rel_l2=0.5),)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("saved = 1", ":8: case[0].saved: unknown key; known are cwd, environment"),
        ("times = 3", ':8: case[0].times: goes with kind = "repeat", not with "resume"'),
        ("timeout = 0", ":8: case[0].timeout: must be a number of seconds above 0"),
        ("timeout = nan", ":8: case[0].timeout: must be a number of seconds above 0"),
        ('environment = { "A=B" = "1" }', ":8: case[0].environment: 'A=B' is no name"),
        ("environment = { A = 1 }", ":8: case[0].environment: A must be a text"),
        ('environment = { A = "\\u0000" }', ":8: case[0].environment: A must be a text"),
        ('cwd = "{save}"', ":8: case[0].cwd: {save} is not known here; there are {work}, {root}"),
        ("repeat_reference = 1", ":8: case[0].repeat_reference: must be true, false or a whole"),
        ("step_offset = -1", ":8: case[0].step_offset: must be a whole number from 0"),
        ('record = { capture = "all" }', ":8: case[0].record: capture 'all' is none of"),
        ('policy = { align = { kind = "x" } }', ":8: case[0].policy: align.kind: must be one of"),
        ("policy = 3", ":8: case[0].policy: must be a policy file, a table, or one of"),
        ('policy = "nosuch"', ":8: case[0].policy: there is no file "),
        ('policy = "???: which"', ":8: case[0].policy: still to be filled in: which"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(line, said, tmp_path):
    with pytest.raises(TraceparityError) as caught:
        read(tmp_path, RESUME.rstrip() + f"\n{line}\n")

    assert f"{tmp_path / 'parity.toml'}{said}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "case: needed: one table [[case]] or more"),
        ("case = 1", "case: needed: one table [[case]] or more"),
        ("[other]", "other: unknown table; known are case, defaults"),
        ("[[case]]\n", "case[0].kind: needed: one of resume, accumulation"),
        ('[[case]]\nkind = "redo"', "case[0].kind: must be one of resume"),
        ('[[case]]\nkind = "repeat"', "case[0].name: needed"),
        ('[[case]]\nkind = "repeat"\nname = "x"', "case[0].command: needed: a command"),
        ('[[case]]\nkind = "repeat"\nname = "x"\ncommand = ""', "case[0].command: is empty"),
        ('[[case]]\nkind = "repeat"\nname = "x"\ncommand = "\'"', "cannot be split into words"),
        ('[[case]]\nkind = "repeat"\nname = "x"\ncommand = [1]', "must be a text or a list"),
        ('[[case]]\nkind = "repeat"\nname = "x\\ny"', "name: must be one line, without control"),
        ('[[case]]\nkind = "repeat"\nname = "\\u001b[31m"', "name: must be one line"),
        (CHECK + 'command = "true"\ninvariants = "/dev/zero"', ".invariants: /dev/zero is no file"),
        ("[[case]\n", "not a TOML file"),
        (RESUME + RESUME.replace("first", "FIRST"), "case[1].name: 'FIRST' is too like 'first'"),
        (
            '[[case]]\nkind = "compare"\nname = "x"\nreference = "a {target}"\ntarget = "b"',
            "case[0].reference: {target} is not known here; there are {work}, {root}",
        ),
        (
            '[[case]]\nkind = "compare"\nname = "x"\nreference = { command = "a" }\ntarget = "b"',
            "case[0].reference: trace: needed",
        ),
        (
            ARCHIVED + "repeat_reference = true",
            "an archived reference is not run again",
        ),
        (
            '[[case]]\nkind = "accumulation"\nname = "x"\nreference = "a"\ntarget = "b"',
            "case[0].microbatches: needed: { reference = N, target = N }",
        ),
        (COVERAGE.replace("coverage =", "#"), "case[0].coverage: needed"),
        (COVERAGE + "expected = [1, 1] }", "coverage.expected: names a sample twice"),
        (COVERAGE + "expected = [true] }", "coverage.expected: must be"),
        (COVERAGE + "padding = -1 }", "coverage.padding: must be a whole number from 0"),
        (COVERAGE + 'policy = "twice" }', "not a TOML file"),
        (COVERAGE.replace("coverage =", "laws = 3 #"), "case[0].laws: must be a table"),
        (
            COVERAGE + 'id = "batch" }\nlaws = { gravity = "verdict" }',
            "case[0].laws: laws.gravity: unknown key",
        ),
    ],
)
def test_what_declares_nothing_possible_is_an_error(text, said, tmp_path):
    with pytest.raises(TraceparityError, match=re.escape(said)):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('"DEBUG=1 python a.py"', 'write environment = { DEBUG = "..." }'),
        ('["DEBUG=1", "python", "a.py"]', 'write environment = { DEBUG = "..." }'),
        ('"python a.py | tee log"', 'which | is for; write ["bash", "-c", "..."]'),
        ('"cd x && python a.py"', "which && is for"),
        ('"python a.py > log 2>&1"', "which > is for"),
        ('"cd x; python a.py"', "which ; is for"),
    ],
)
def test_what_only_a_shell_understands_is_told_with_the_remedy(command, said, tmp_path):
    with pytest.raises(TraceparityError, match=re.escape(said)) as caught:
        read(tmp_path, f"{CHECK}command = {command}\n")

    assert f"{tmp_path / 'parity.toml'}:4: case[0].command: no shell runs it" in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        '["bash", "-c", "a | b > c"]',
        '["python", "a.py", ">"]',
        "\"python a.py --sep '|' --at x=1 --pad <pad>\"",
        "\"bash -c 'a && b; c'\"",
    ],
)
def test_words_that_are_meant_are_left_alone(command, tmp_path):
    assert read(tmp_path, f"{CHECK}command = {command}\n").cases


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(TraceparityError, match="cannot read the case file: No such file"):
        read_cases(tmp_path / "none.toml")
