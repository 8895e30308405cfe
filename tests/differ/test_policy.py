"""Policies: what a file and options may declare, and how a mistake is told."""

import pytest

from traceparity.differ.errors import PolicyError
from traceparity.differ.law_names import LAW_NAMES
from traceparity.differ.policy import Align, Coverage, Policy, Rule, glob_matches
from traceparity.differ.policy_file import read_policy
from traceparity.differ.policy_options import with_options
from traceparity.differ.policy_text import policy_text
from traceparity.invariants.laws.bounds import FINITE
from traceparity.invariants.laws.pack import LAWS

EVERYTHING = """
[align]
kind = "resume"
step_offset = 7
ranks = "replicated"
phases = ["optimizer", "gradient"]
order = "free"
unmatched = "allow"
evaluation = "compare"
device = "compare"
rename = { "layers.{i}.fc1" = "blocks.{i}.mlp.0" }

[[compare]]
site = "gradient:*"
rel_l2 = 1e-5

[[compare]]
site = "forward:*"
rtol = 1e-4
atol = 0
ulp = 4
equal_nan = true

[[compare]]
site = "loss:*"
rtol = 1e-4
symmetric = true

[coverage]
policy = "expected_padding"
padding = 3
id = "batch[row]"
expected = "range(0, 50000)"
scope = "trace"
count = "fetched"
"""


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> Policy:
        path = tmp_path / "policy.toml"
        path.write_text(text)
        return read_policy(path)

    return read


def test_every_key_of_the_design_is_read(read):
    assert read(EVERYTHING) == Policy(
        Align(
            kind="resume",
            step_offset=7,
            ranks="replicated",
            phases=("gradient", "optimizer"),
            order="free",
            unmatched="allow",
            evaluation="compare",
            device="compare",
            rename=(("layers.{i}.fc1", "blocks.{i}.mlp.0"),),
        ),
        (
            Rule("gradient:*", rel_l2=1e-5),
            Rule("forward:*", rtol=1e-4, atol=0.0, ulp=4, equal_nan=True),
            Rule("loss:*", rtol=1e-4, symmetric=True),
        ),
        Coverage("expected_padding", "batch[row]", "range(0, 50000)", "trace", "fetched", 3),
    )


def test_an_empty_file_is_the_default_policy(read):
    assert read("") == Policy()


def test_a_mark_before_the_first_character_is_no_part_of_the_file(read):
    assert read("\ufeff[align]\nkind = 'resume'").align.kind == "resume"


def test_equal_nan_alone_asks_for_equal_numbers(read):
    rules = read("[[compare]]\nsite='*'\nequal_nan=true").rules

    assert rules == (Rule("*", atol=0.0, equal_nan=True),)


def test_accumulation_declares_its_micro_batches(read):
    align = read("[align]\nkind='accumulation'\nmicrobatches={reference=1,target=4}").align

    assert align.microbatches == (1, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[align]\nkind = 'resumed'", ":2: align.kind: must be one of start, resume, accumulation"),
        ("[align]\n\noffset = 3", ":3: align.offset: unknown key"),
        ("[aling]\nkind = 'start'", ":1: aling: unknown table"),
        ("[align]\nstep_offset = 3", ':2: align.step_offset: goes with kind = "resume" only'),
        ("[align]\nkind='resume'\nstep_offset = -1", ":3: align.step_offset: must be a whole"),
        ("[align]\nkind='resume'\nstep_offset = true", ":3: align.step_offset: must be a whole"),
        ("[align]\nmicrobatches = {reference=1, target=2}", ":2: align.microbatches: goes with"),
        ("[align]\nphases = []", ":2: align.phases: must be a list"),
        ("[align]\nphases = ['grad']", ":2: align.phases: no phase 'grad'"),
        ("[align]\nrename = {'a.{i}' = 'b'}", ":2: align.rename: {i} stands on one side"),
        (
            "[align]\nkind='accumulation'\nloss='weighted'\nloss_weight='import os'",
            ":4: align.loss_weight: must be",
        ),
        ("a = " + 3000 * "[", "nested too deeply"),
        ("[[compare]]\nrtol = 1", ":1: compare[0].site: needed"),
        ("[[compare]]\nsite='*'\n[[compare]]\nsite='*'\nrtol='1'", ":5: compare[1].rtol: must be"),
        ("[[compare]]\nsite='*'\nrtol = nan", ":3: compare[0].rtol: must be a finite number"),
        ("[[compare]]\nsite='*'\nulp = 1.5", ":3: compare[0].ulp: must be a whole number"),
        ("[[compare]]\nsite='*'\nignore=true\natol=1", ":3: compare[0].ignore: an ignored site"),
        ("[align.rename]\na = 'c'\nb = 'c'", ":1: align.rename: both a and b are to be c"),
        ("[align.rename]\n'a.{i}' = 'c.{i}'\n'b.{j}' = 'c.{j}'", "both a.{i} and b.{j} are to be"),
        ("[[compare]]\nsite='*'\ntolerance='noise * 0'", ":3: compare[0].tolerance: must be a"),
        ("[[compare]]\nsite='*'\ntolerance='noise * 0.0'", ":3: compare[0].tolerance: must be a"),
        ("[[compare]]\nsite='*'\nulp=1\nsymmetric=true", ":4: compare[0].symmetric: goes with"),
        ("[compare]\nsite='*'", ":1: compare: must be an array of tables"),
        ("[coverage]\nscope='epoch'", ":1: coverage.policy: needed"),
        ("[coverage]\npolicy='exactly_once'\npadding=1", ":3: coverage.padding: goes with"),
        ("[coverage]\npolicy='at_least_once'\nexpected='0..9'", ":3: coverage.expected: must be"),
        ("[coverage]\npolicy='at_least_once'\nexpected=[1,1]", ":3: coverage.expected: names a"),
    ],
)
def test_a_mistake_names_file_line_and_key(read, text, message):
    with pytest.raises(PolicyError) as raised:
        read(text)

    assert message in str(raised.value)
    assert "policy.toml" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_broken_toml_and_a_missing_file_are_policy_errors(read, tmp_path):
    with pytest.raises(PolicyError, match="not a TOML file"):
        read("[align")
    with pytest.raises(PolicyError, match="cannot read"):
        read_policy(tmp_path / "absent.toml")


def test_globs_take_brackets_as_they_are():
    assert glob_matches("data:loader[0]:batch[*]", "data:loader[0]:batch[image]")
    assert not glob_matches("data:loader[0]:*", "data:loader0:batch")
    assert glob_matches("*:head.*", "gradient:head.weight:grad")
    assert not glob_matches("gradient:*", "backward:gradient:x")


def test_the_last_rule_that_matches_wins():
    policy = Policy(rules=(Rule("*", rtol=1.0), Rule("loss:*"), Rule("gradient:head*", ulp=1)))

    assert policy.rule_for(["forward::x"]).rtol == 1.0
    assert policy.rule_for(["loss:loss:value"]).exact
    assert policy.rule_for(["gradient:other:grad", "gradient:head:grad"]).ulp == 1


def test_options_are_shorthand_for_a_file_and_stronger_than_it(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("[align]\nkind = 'resume'\nstep_offset = 3\n[[compare]]\nsite='*'\nrtol=1\n")

    policy = with_options(
        path,
        step_offset="auto",
        rename=["a=b"],
        phases="loss,data",
        unmatched="allow",
        ignore=["x"],
    )

    assert policy.align == Align(
        kind="resume", phases=("data", "loss"), unmatched="allow", rename=(("a", "b"),)
    )
    assert policy.rules == (Rule("*", rtol=1.0), Rule("x", ignore=True))


@pytest.mark.parametrize(
    "options",
    [
        {"step_offset": "later"},
        {"step_offset": "3", "align": "start"},
        {"rename": ["a"]},
        {"rename": ["a.{i}=b"]},
        {"rename": ["a=b", "a=c"]},
        {"phases": "grad"},
        {"phases": ","},
    ],
)
def test_impossible_options_are_policy_errors(options):
    with pytest.raises(PolicyError):
        with_options(None, **options)


def test_an_option_names_what_a_file_named_otherwise(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text('[align.rename]\n"a" = "b"\n"c" = "d"\n')

    assert dict(with_options(file, rename=["a=e"]).align.rename) == {"a": "e", "c": "d"}


def test_the_effective_policy_is_written_as_a_file_says_it(read):
    written = read(EVERYTHING).as_dict()

    assert written["align"]["step_offset"] == 7
    assert written["compare"][0] == {"site": "gradient:*", "rel_l2": 1e-5}
    assert written["coverage"]["padding"] == 3
    assert Policy(Align(kind="resume")).as_dict()["align"]["step_offset"] == "auto"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rename": ["a=c", "b=c"]}, "--rename: both a and b are to be c"),
        ({"ignore": [""]}, "--ignore: needs a glob"),
    ],
)
def test_an_option_that_can_mean_nothing_is_told(options, said):
    with pytest.raises(PolicyError, match=said):
        with_options(None, **options)


def test_laws_are_declared_by_the_names_that_they_have(read):
    """What a check finds by itself, values that are not finite, is none to declare."""
    assert tuple(law.id for law in LAWS if law.rule is not FINITE) == LAW_NAMES

    policy = read('[laws]\nall = "verdict"\ntrain-mode = "off"\nwindows-alike = "advice"\n')

    assert policy.laws == (("all", "verdict"), ("train-mode", "off"), ("windows-alike", "advice"))
    assert read(policy_text(policy)) == policy


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('gravity = "verdict"', "policy.toml:2: laws.gravity: unknown key; known are all, batches"),
        (
            'train-mode = "on"',
            "policy.toml:2: laws.train-mode: must be one of verdict, advice, off",
        ),
        ("all = true", "policy.toml:2: laws.all: must be one of verdict, advice, off"),
    ],
)
def test_a_law_that_is_no_law_is_told_with_its_line(read, line, said):
    with pytest.raises(PolicyError) as error:
        read(f"[laws]\n{line}\n")

    assert said in str(error.value)
