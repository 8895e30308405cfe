"""tp-check with built-in laws: advice beside a verdict, and verdicts where they are declared."""

import json

import pytest

from traceparity.invariants.laws.choice import choose

SCRIPT = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
"""
"""Gradients are never cleared."""


@pytest.fixture(scope="module")
def trace(shared_commands):
    (shared_commands.folder / "train.py").write_text(SCRIPT)
    return shared_commands.record("uncleared", "train.py", cwd=shared_commands.folder)


def check(commands, *arguments):
    done = commands.run("tp-check", "--format", "json", *arguments)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_advice_never_changes_the_verdict(commands, trace):
    status, result, _ = check(commands, trace)

    assert (status, result["outcome"], result["violations_total"]) == (0, "PASS", 0)
    (cause,) = result["advice"]
    assert cause["first"]["invariant"] == "gradients-cleared"
    assert (cause["first"]["step"], cause["first"]["component"]) == (1, "0.weight")
    assert cause["first"]["location"].startswith("train.py:")
    assert (cause["follow"], cause["last_step"]) == (2, 3)


def test_advice_is_printed_under_the_verdict(commands, trace):
    done = commands.run("tp-check", trace)

    assert done.stdout.startswith("PASS")
    assert "decides nothing" in done.stdout
    assert "gradients-cleared" in done.stdout


@pytest.mark.parametrize("option", [("--builtin",), ("--law", "gradients-cleared")])
def test_a_declared_law_decides(commands, trace, option):
    status, result, _ = check(commands, *option, trace)

    assert (status, result["outcome"]) == (1, "FAIL")
    assert {each["kind"] for each in result["violations"]} == {"law"}
    assert "gradients-cleared" in result["laws"]["declared"]
    assert result["advice"] == []


def test_a_law_can_be_left_out(commands, trace):
    status, result, _ = check(commands, "--builtin", "--without-law", "gradients-cleared", trace)

    assert (status, result["outcome"], result["advice"]) == (0, "PASS", [])


@pytest.mark.parametrize(
    ("table", "options", "outcome", "advised"),
    [
        ('all = "verdict"', (), "FAIL", 0),
        ('all = "verdict"\ngradients-cleared = "advice"', (), "PASS", 1),
        ('all = "off"', ("--law", "gradients-cleared"), "FAIL", 0),
    ],
)
def test_a_policy_says_which_laws_decide(commands, trace, table, options, outcome, advised):
    """Options of the command line are stronger."""
    policy = commands.folder / "policy.toml"
    policy.write_text(f"[laws]\n{table}\n")

    _, result, _ = check(commands, "--policy", policy, *options, trace)

    assert (result["outcome"], len(result["advice"])) == (outcome, advised)
    assert result["policy"]["laws"]


@pytest.mark.parametrize(
    ("policy", "options", "word"),
    [
        ({"train-mode": "verdict"}, {}, "verdict"),
        ({"all": "verdict", "train-mode": "off"}, {}, "off"),
        ({"all": "off"}, {}, "off"),
        ({}, {}, "advice"),
        ({"all": "advice"}, {"builtin": True}, "verdict"),
        ({"train-mode": "advice"}, {"builtin": True}, "verdict"),
        ({"train-mode": "off"}, {"builtin": True}, "off"),
        ({"all": "verdict"}, {"without": ["train-mode"]}, "off"),
        ({"train-mode": "off"}, {"laws": ["train-mode"]}, "verdict"),
    ],
)
def test_a_law_has_its_own_word_before_that_of_all(policy, options, word):
    choice = choose(policy=policy, **options)

    words = dict.fromkeys((law.id for law in choice.declared), "verdict")
    words |= dict.fromkeys((law.id for law in choice.advised), "advice")
    assert words.get("train-mode", "off") == word


def test_advice_can_be_left_out(commands, trace):
    status, result, _ = check(commands, "--no-advice", trace)

    assert (status, result["advice"]) == (0, [])


def test_replicas_of_one_process_cannot_be_judged(commands, trace):
    status, result, _ = check(commands, "--replicas", trace)

    assert (status, result["outcome"]) == (3, "ABSTAIN")
    assert "one process only" in result["reason"]


def test_an_unknown_law_is_an_error_that_lists_them(commands, trace):
    done = commands.run("tp-check", "--law", "gravity", trace)

    assert done.returncode == 2
    assert "no law 'gravity'; there are updates-happen" in done.stderr


def test_a_recording_that_leaves_out_what_a_law_needs_is_no_pass(commands, trace):
    folder = commands.folder
    (folder / "train.py").write_text(SCRIPT)
    part = folder / "part.trace"
    done = commands.run("tp-record", "-o", part, "--phases", "loss,optimizer", "--", "train.py")
    assert done.returncode == 0, done.stderr

    status, result, _ = check(commands, "--builtin", part)

    assert (status, result["outcome"]) == (3, "ABSTAIN")
    assert "leaves phases or sites out" in result["reason"]
