"""What diverges is run again, recorded ever more closely, down to the operator and its line."""

import json

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import sys, time
import torch
from torch import nn

class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 0.5))

    def forward(self, x):
        x = x * self.weight
        if "fused" in sys.argv:
            return x.mul(2.0 + 1e-6)
        if "chance" in sys.argv:
            return x.mul(2.0 + 1e-6 * (time.time_ns() % 1000 + 1))
        return x.mul(2.0)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 3), Mix(), nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()
"""
CASES = """
[[case]]
name = "fused"
kind = "compare"
reference = "train.py"
target = "train.py fused"
policy = { compare = [{ site = "*", ignore = true }, { site = "forward:*", rtol = 1e-9 }] }

[[case]]
name = "chance"
kind = "repeat"
command = "train.py chance"
"""


def test_the_operator_that_differs_is_named_or_that_chance_has_a_part_in_it(commands):
    """Sketches cannot decide the first case, which is what values are for."""
    (commands.folder / "train.py").write_text(SCRIPT.lstrip())
    (commands.folder / "parity.toml").write_text(CASES)
    lines = SCRIPT.lstrip().splitlines()
    reference = lines.index("        return x.mul(2.0)") + 1

    done = commands.run(
        "tp-verify", "--zoom", "--format", "text", "--format", "json=r.json", "parity.toml"
    )

    assert done.returncode == 1, done.stdout + done.stderr
    fused, chance = json.loads((commands.folder / "r.json").read_text())["cases"]
    assert fused["outcome"] == "ABSTAIN", fused["reason"]
    said = fused["zoom"]["reason"]
    assert said.startswith("the first operator that differs is aten.mul[1] in 1 at "), said
    assert f"train.py:{reference}: " in said
    assert said.endswith("it is given another value")
    first = fused["zoom"]["comparison"]["first_divergence"]
    assert (first["component"], first["field"]) == ("1", "aten.mul[1].input[1]")
    assert [run["role"] for run in fused["executions"]] == [
        "reference", "target",
        "reference-values", "target-values", "reference-operators", "target-operators",
    ]  # fmt: skip
    assert chance["outcome"] == "FAIL"
    assert "aten.mul[1] in 1" in chance["zoom"]["reason"]
    assert "Zoom: the first operator that differs is aten.mul[1] in 1" in done.stdout
