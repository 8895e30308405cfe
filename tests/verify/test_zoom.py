"""What diverges is run again, recorded ever more closely, down to the operator and its line."""

import inspect
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import traceparity as tp
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.policy_file import read_policy
from traceparity.recorder.settings import Settings
from traceparity.verify.zoom import Sides, zoom

SCRIPT = """
import sys
import torch
from torch import nn

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.mul(2.0)

class Wrong(Square):
    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.mul(2.5)

class Squared(nn.Module):
    def forward(self, x):
        return (Wrong if "wrong" in sys.argv else Square).apply(x)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 3), Squared(), nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer.zero_grad()
model(torch.randn(8, 3)).square().mean().backward()
optimizer.step()
"""
CASES = """
[[case]]
name = "formula"
kind = "compare"
reference = "train.py"
target = "train.py wrong"
"""


@pytest.mark.slow
def test_a_wrong_backward_formula_is_named_in_the_report_of_its_case(commands):
    (commands.folder / "train.py").write_text(SCRIPT.lstrip())
    (commands.folder / "parity.toml").write_text(CASES)
    lines = SCRIPT.lstrip().splitlines()
    right, wrong, created, called = (
        next(number for number, line in enumerate(lines, 1) if text in line)
        for text in ("mul(2.0)", "mul(2.5)", "return x * x", ".backward()")
    )

    done = commands.run(
        "tp-verify", "--zoom", "--format", "text", "--format", "json=r.json", "parity.toml"
    )

    assert done.returncode == 1, done.stdout + done.stderr
    (case,) = json.loads((commands.folder / "r.json").read_text())["cases"]
    assert case["outcome"] == "FAIL"
    assert case["zoom"]["reason"] == (
        f"the first operator that differs is aten.mul[0] in 1, in the backward pass, at"
        f" train.py:{right} (target: train.py:{wrong}): it is given another value; aten.mul[0]"
        f" belongs to the backward of train.py:{created} (SquareBackward), in the backward pass"
        f" called at train.py:{called}; in the target the backward of train.py:{created}"
        f" (WrongBackward), in the backward pass called at train.py:{called}"
    )
    first = case["zoom"]["comparison"]["first_divergence"]
    place = (first["phase"], first["component"], first["field"])
    assert place == ("backward", "1", "aten.mul[0].input[1]")
    assert [run["role"] for run in case["executions"]] == [
        "reference", "target",
        "reference-values", "target-values", "reference-operators", "target-operators",
    ]  # fmt: skip
    assert "Zoom: the first operator that differs is aten.mul[0] in 1" in done.stdout


class Mix(nn.Module):
    """Scales what it is given; by another number each time where chance decides."""

    numbers = itertools.count(1)

    def __init__(self, kind):
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 0.5))
        self.kind = kind

    def forward(self, x):
        x = x * self.weight
        if self.kind == "fused":
            return x.mul(2.0 + 1e-6)
        if self.kind == "chance":
            return x.mul(2.0 + 1e-6 * next(self.numbers))
        return x.mul(2.0)


class Descent(torch.optim.Optimizer):
    """Plain descent, with a factor in the update that should be 1."""

    def __init__(self, parameters, factor):
        super().__init__(parameters, {"lr": 0.1})
        self.factor = factor

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                change = parameter.grad * group["lr"]
                change = change * self.factor
                parameter.sub_(change)


def squares(out, kind):
    error = out - 1.0
    if kind == "formula":
        return error.pow(2).mean() * 0.5 + error.detach().pow(2).mean() * 0.5
    return error.pow(2).mean() * 0.5 + error.pow(2).mean() * 0.5


def train(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), Mix(kind), nn.Linear(3, 1))
    optimizer = Descent(model.parameters(), 1.01 if kind == "update" else 1.0)
    for _ in range(2):
        optimizer.zero_grad()
        loss = squares(model(torch.randn(8, 3)), kind)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1 if kind == "clip" else 0.2)
        optimizer.step()


class Center(nn.Module):
    """Takes from each sample what the others of its batch have in common with it."""

    def forward(self, x):
        return x - x.mean(0)


def train_in_parts(kind, parts):
    """Two updates of 8 samples, in so many micro-batches; sums, so that these add up."""
    torch.manual_seed(0)
    inner = {"norm": nn.BatchNorm1d(3), "center": Center()}.get(kind, nn.Tanh())
    model = nn.Sequential(nn.Linear(3, 3), inner, nn.Linear(3, 1))
    optimizer = Descent(model.parameters(), parts if kind == "update" else 1.0)
    for _ in range(2):
        optimizer.zero_grad()
        for x in torch.randn(8, 3).chunk(parts):
            (model(x) - 1.0).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1 * parts if kind == "clip" else 0.2)
        optimizer.step()


@pytest.mark.parametrize(
    ("kind", "said", "line"),
    [
        ("norm", "is aten.native_batch_norm[0] in 1", ""),
        ("center", "is aten.sub[0] in 1 at ", "x - x.mean(0)"),
        ("clip", "in program, between backward and update,", "0.1 * parts"),
        ("update", "is aten.mul[1] in optimizer[0] at ", "self.factor"),
        ("rounding", "", ""),
    ],
)
def test_the_operator_is_named_in_updates_that_are_cut_in_other_ways(kind, said, line, tmp_path):
    def record(parts, name, settings):
        path = tmp_path / f"{name}-{parts}.trace"
        with tp.record(path, settings=settings):
            train_in_parts(kind, parts)
        return path

    align = Align("accumulation", microbatches=(1, 4))
    rules = () if kind == "rounding" else read_policy(Path("accumulation")).rules
    policy = Policy(align=align, rules=rules)
    result = diff_runs(record(1, "first", Settings()), [record(4, "first", Settings())], policy)

    sides = Sides(
        *(lambda settings, name, parts=parts: record(parts, name, settings) for parts in (1, 4)),
        Settings(), policy,
    )  # fmt: skip
    seen = zoom(result, sides)

    assert result.outcome.name == "FAIL", result.reason
    assert said in seen.reason
    assert "chance" not in seen.reason
    assert ("is what rounding comes to" in seen.reason) is (kind == "rounding")
    where = {"clip": train_in_parts, "center": Center.forward, "update": Descent.step}.get(kind)
    assert where is None or line_of(where, line) in seen.reason


@dataclass
class Runs:
    """Records both sides in this process: what they are run by is nothing to the zoom."""

    folder: object

    def record(self, kind, settings, name):
        path = self.folder / f"{name}.trace"
        with tp.record(path, settings=settings):
            train(kind)
        return path

    def zoomed(self, reference, target, *rules):
        policy = Policy(rules=rules)
        paths = [
            self.record(kind, Settings(), name)
            for kind, name in ((reference, "reference"), (target, "target"))
        ]
        result = diff_runs(paths[0], [paths[1]], policy)
        sides = Sides(
            lambda settings, name: self.record(reference, settings, f"reference-{name}"),
            lambda settings, name: self.record(target, settings, f"target-{name}"),
            Settings(),
            policy,
        )
        return result, zoom(result, sides)


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


def line_of(function, text):
    """``test_zoom.py:line`` of the line of a function that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return f"test_zoom.py:{first + next(n for n, line in enumerate(lines) if text in line)}"


def test_what_sketches_cannot_decide_is_found_with_values_and_operators(runs):
    """Each product has a line of its own, and both runs are told theirs."""
    rules = Rule(site="*", ignore=True), Rule(site="forward:*", rtol=1e-9)

    result, seen = runs.zoomed("plain", "fused", *rules)

    assert result.outcome.name == "ABSTAIN", result.reason
    assert seen.reason.startswith("the first operator that differs is aten.mul[1] in 1 at "), seen
    assert line_of(Mix.forward, "return x.mul(2.0)") in seen.reason
    assert f"{line_of(Mix.forward, '(2.0 + 1e-6)')})" in seen.reason
    assert seen.reason.endswith("it is given another value")
    first = seen.comparison.first
    assert (first.component, first.field) == ("1", "aten.mul[1].input[1]")


def test_chance_is_found_as_well(runs):
    result, seen = runs.zoomed("chance", "chance")

    assert result.outcome.name == "FAIL"
    assert "aten.mul[1] in 1 at " in seen.reason


def test_a_loss_with_an_equal_value_and_another_gradient_is_told_by_its_line(runs):
    """What autograd runs for code of the program outside of modules, in no line of its own."""
    result, seen = runs.zoomed("plain", "formula")

    assert (result.first.phase, result.first.component) == ("backward", "2")
    assert "in program, in the backward pass, at " in seen.reason
    assert line_of(squares, "return error.pow(2).mean() * 0.5 + error.pow") in seen.reason
    assert f"called at {'tests/verify/'}{line_of(train, '.backward()')}" in seen.reason


def test_a_wrong_update_is_told_by_its_line_and_that_of_the_step(runs):
    result, seen = runs.zoomed("plain", "update")

    assert (result.first.phase, result.first.field) == ("optimizer", "value")
    assert "aten.mul[1] in optimizer[0] at " in seen.reason
    assert line_of(Descent.step, "self.factor") in seen.reason
    assert line_of(train, "optimizer.step()") in seen.reason


def test_what_changes_gradients_before_the_update_is_told_by_its_line(runs):
    result, seen = runs.zoomed("plain", "clip")

    assert (result.first.phase, result.first.component) == ("gradient", "0.weight")
    assert "in program, between backward and update, at " in seen.reason
    assert line_of(train, "clip_grad_norm_") in seen.reason


AGREE = "the difference does not come again: step 0 was run again on both sides"
CHANGED = "run again, the reference's command gives another step 0 than the archived trace"


@pytest.mark.parametrize(
    ("reference", "target", "is_archived", "said"),
    [
        pytest.param("update", "plain", False, AGREE, id="by chance"),
        pytest.param("update", "plain", True, CHANGED, id="by a change since it was archived"),
        pytest.param("plain", "update", True, AGREE, id="archived, and by chance in the target"),
    ],
)
def test_a_difference_that_does_not_come_again_is_said_to(
    runs, reference, target, is_archived, said
):
    """Run again, both sides are plain."""
    paths = [runs.record(kind, Settings(), kind) for kind in (reference, target)]
    result = diff_runs(paths[0], [paths[1]], Policy())
    reruns = (
        lambda settings, name, side=side: runs.record("plain", settings, f"{side}-{name}")
        for side in ("reference", "target")
    )
    archived = paths[0] if is_archived else None

    seen = zoom(result, Sides(*reruns, Settings(), Policy(), archived))

    assert seen.reason.startswith(said)
