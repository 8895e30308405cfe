"""Presets, and policies written out: what a user copies and what tp-diff prints."""

from pathlib import Path

import pytest
from synthetic import Run
from test_policy import EVERYTHING

import traceparity.differ
from traceparity.differ.diff import diff_runs
from traceparity.differ.errors import PolicyError
from traceparity.differ.policy import Align, Coverage, Policy, Rule
from traceparity.differ.policy_file import read_policy
from traceparity.differ.policy_options import with_options
from traceparity.differ.policy_text import policy_text
from traceparity.differ.preset import PRESETS, preset_text
from traceparity.differ.result import Outcome

PACKAGED = Path(traceparity.differ.__file__).parent / "presets"
GROUP = "optimizer:optimizer[0] group[0]:lr"


def test_every_preset_in_the_folder_is_known_and_the_other_way_round():
    assert {path.stem for path in PACKAGED.glob("*.toml")} == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_policy_file_that_can_be_copied(name, tmp_path):
    copied = tmp_path / "mine.toml"
    copied.write_text(preset_text(name))

    assert read_policy(copied) == read_policy(Path(name))


@pytest.mark.parametrize("name", PRESETS)
def test_a_run_equals_itself_under_every_preset(name, bench):
    microbatches = "1:1" if name == "accumulation" else None
    policy = with_options(Path(name), microbatches=microbatches)
    trace = bench.write(Run().steps(3))

    assert diff_runs(trace, [trace], policy).outcome is Outcome.PASS


def test_the_exact_preset_is_what_holds_without_a_policy():
    assert read_policy(Path("exact")) == Policy()


@pytest.mark.parametrize("name", ["close", "accumulation", "ddp", "refactor"])
def test_hyperparameters_stay_exact_under_tolerant_presets(name):
    policy = read_policy(Path(name))

    assert policy.rule_for([GROUP]).exact
    assert policy.rule_for(["gradient:head.weight:grad"]).rel_l2 == 1e-4


def test_a_file_is_stronger_than_a_preset_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "close").write_text("[align]\nkind = 'resume'\n")
    monkeypatch.chdir(tmp_path)

    assert read_policy(Path("close")).align.kind == "resume"


def test_a_name_that_is_no_preset_is_told_with_those_that_are():
    with pytest.raises(PolicyError, match="presets are exact, close, resume"):
        read_policy(Path("loose"))


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(Align(kind="resume")),
        Policy(
            Align(kind="accumulation", microbatches=(1, 4), loss="weighted", loss_weight="batch[n]")
        ),
        Policy(Align(rename=(('layers.{i}."q"', "blöcke.{i}\\\n\x7f"),)), (Rule("a", ulp=1),)),
        Policy(rules=(Rule("*", rtol=1e-300, atol=0.0, equal_nan=True), Rule("x:*", ignore=True))),
        Policy(coverage=Coverage("exactly_once", expected=(1, "two"))),
    ],
)
def test_a_policy_that_is_written_out_reads_as_the_same(policy, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(policy_text(policy), encoding="utf-8")

    assert read_policy(path) == policy


def test_every_key_of_the_design_survives_writing(tmp_path):
    (tmp_path / "one.toml").write_text(EVERYTHING)
    policy = read_policy(tmp_path / "one.toml")
    (tmp_path / "two.toml").write_text(policy_text(policy))

    assert read_policy(tmp_path / "two.toml") == policy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[align]\nloss = 'mean'", ':2: align.loss: goes with kind = "accumulation" only'),
        ("[align]\nkind='accumulation'\nloss = 'max'", ":3: align.loss: must be one of sum, mean"),
        ("[align]\nkind='accumulation'\nloss_weight='batch[1]'", ":3: align.loss_weight: goes wi"),
        ("[align]\nkind='accumulation'\nloss='weighted'\nloss_weight=1", ":4: align.loss_weight:"),
    ],
)
def test_mistakes_about_losses_are_told(text, message, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(text)

    with pytest.raises(PolicyError) as raised:
        read_policy(path)

    assert message in str(raised.value)


def test_options_declare_an_accumulation():
    policy = with_options(Path("accumulation"), microbatches="2:8", loss="mean")

    assert policy.align == Align(kind="accumulation", microbatches=(2, 8), loss="mean")
    assert with_options(None, microbatches="1:4").align.kind == "accumulation"
    assert with_options(Path("accumulation"), align="start").align == Align()


@pytest.mark.parametrize("counts", ["4", "1:", "0:4", "1:2:3", "a:b", "-1:4"])
def test_counts_that_are_none_are_policy_errors(counts):
    with pytest.raises(PolicyError, match="--microbatches must be"):
        with_options(None, microbatches=counts)


@pytest.mark.parametrize("options", [{"microbatches": "1:4"}, {"loss": "sum"}])
def test_options_of_accumulation_go_with_no_other_alignment(options):
    with pytest.raises(PolicyError, match="goes with --align accumulation only"):
        with_options(None, align="resume", **options)
