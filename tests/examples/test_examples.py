"""The examples do what their READMEs say."""

import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.slow


def first(result: dict[str, Any]) -> tuple[int, str, str, str]:
    assert result["outcome"] == "FAIL", result["reason"]
    place = result["first_divergence"]
    return place["step"], place["phase"], place["component"], place["field"]


def test_the_demo_explains_both_resumes(commands: Any) -> None:
    """The demo itself checks both verdicts by exit status."""
    done = commands.run("bash", EXAMPLES / "gpt" / "demo.sh", commands.folder)

    assert done.returncode == 0, done.stdout + done.stderr
    buggy, fixed = done.stdout.split("5. With the scheduler restored")
    assert "FAIL" in buggy
    assert "PASS" in fixed


@pytest.mark.parametrize(
    ("forgotten", "phase", "component"),
    [
        ("scheduler", "state", "scheduler.last_epoch"),
        ("optimizer", "state", "optimizer[0]"),
        ("data", "data", "loader[0]"),
        ("rng", "forward", "blocks.0.attn.proj"),
    ],
)
def test_each_forgotten_part_of_a_checkpoint_is_found(
    forgotten: str, phase: str, component: str, commands: Any
) -> None:
    script, half = EXAMPLES / "gpt" / "train.py", commands.folder / "half.pt"
    saved = commands.run("python", script, "--stop-at", "12", "--save", half)
    assert saved.returncode == 0, saved.stderr
    whole = commands.record("whole", script, capture="digest")
    target = commands.record(
        "target", script, "--resume", half, "--forget", forgotten, capture="digest"
    )

    step, *place, _ = first(commands.diff("--align", "resume", whole, target))

    assert (step, place[0]) == (12, phase)
    assert place[1].split(" ")[0] == component


def test_first_run_tells_equal_runs_and_changed_options_apart(commands: Any) -> None:
    script = EXAMPLES / "first_run" / "train.py"
    a, b = (commands.record(name, script) for name in "ab")
    rate = commands.record("lr", script, "--lr", "0.011")
    seed = commands.record("seed", script, "--seed", "1")

    assert commands.diff(a, b)["outcome"] == "PASS"
    step, _, component, field = first(commands.diff(a, rate))
    assert (step, component, field) == (0, "optimizer[0] group[0]", "lr")
    assert first(commands.diff(a, seed)) == (0, "state", "0.weight", "value")


def test_refactor_passes_under_declared_renames_and_shows_a_real_change(commands: Any) -> None:
    folder = EXAMPLES / "refactor"
    before = commands.record("before", folder / "before.py")
    after = commands.record("after", folder / "after.py")
    gelu = commands.record("gelu", folder / "after.py", "--gelu")
    policy = ("--policy", folder / "policy.toml")

    result = commands.diff(*policy, before, after)
    assert result["outcome"] == "PASS", result["first_divergence"]
    place = (0, "forward", "blocks.0.mlp.2", "input[0]")  # layers.0.fc2 under its new name
    assert first(commands.diff(*policy, before, gelu)) == place
    assert commands.diff(before, after)["outcome"] == "FAIL"

    proposed = commands.folder / "proposed.toml"
    proposed.write_text(commands.run("tp-diff", "--propose-renames", before, after).stdout)
    result = commands.diff("--policy", proposed, "--unmatched", "allow", before, after)
    assert result["outcome"] == "PASS", result["first_divergence"]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("resume", "state:scheduler.last_epoch:value"),
        ("accumulation", "loss:loss:value"),
        ("coverage", "exactly_once is violated"),
    ],
)
def test_each_quickstart_has_a_case_that_passes_and_one_that_fails(
    name: str, place: str, commands: Any
) -> None:
    file, work = EXAMPLES / name / "parity.toml", commands.folder / "work"

    done = commands.run("tp-verify", file, "--work", work, "--format", "json")

    assert done.returncode == 1, done.stdout + done.stderr
    good, bad = json.loads(done.stdout)["cases"]
    assert (good["outcome"], bad["outcome"]) == ("PASS", "FAIL"), done.stdout
    assert place in bad["reason"]


def test_a_forgotten_train_mode_is_a_changed_flag(commands: Any) -> None:
    script = EXAMPLES / "forgotten_train" / "train.py"
    good = commands.record("good", script)
    bad = commands.record("bad", script, "--forget-train")

    step, phase, _, field = first(commands.diff(good, bad))

    assert (step, phase, field) == (4, "state", "training")
