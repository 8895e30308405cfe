"""Programs whose updates do nothing, at a rate at which a tolerance cannot tell."""

from pathlib import Path

import pytest
import torch
from torch import nn

import traceparity as tp
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy_file import read_policy


class Careless(torch.optim.Optimizer):
    """Gradient descent, or what somebody took for it."""

    def __init__(self, parameters, how: str) -> None:
        self.how = how
        super().__init__(parameters, {"lr": 1e-5})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            if self.how == "data":
                parameter.data.sub_(parameter.grad, alpha=1e-5)
            elif self.how != "nothing":
                parameter.sub_(parameter.grad, alpha=0.0 if self.how == "times 0" else 1e-5)


def trained(folder: Path, how: str) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = Careless(model.parameters(), how)
    path = folder / f"{how}.trace"
    with tp.record(path):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 6)).square().mean().backward()
            before = [parameter.detach().clone() for parameter in model.parameters()]
            optimizer.step()
            if how == "undone":
                for parameter, value in zip(model.parameters(), before, strict=True):
                    parameter.data.copy_(value)
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("good"), "well")


@pytest.mark.parametrize(
    ("how", "place"),
    [("times 0", (0, "optimizer")), ("nothing", (0, "optimizer")), ("undone", (1, "state"))],
)
def test_a_dead_optimizer_is_found_under_a_tolerance(good, tmp_path, how, place):
    bad = trained(tmp_path, how)

    for preset in ("close", "refactor", "ddp"):
        policy = read_policy(Path(preset))
        for runs in ((good, bad), (bad, good)):
            first = diff_runs(runs[0], [runs[1]], policy).first
            assert (first.step, first.phase) == place
            assert first.component == "0.weight"
        assert diff_runs(bad, [bad], policy).first is None


def test_updates_past_the_version_counter_are_updates(good, tmp_path):
    policy = read_policy(Path("close"))

    assert diff_runs(good, [trained(tmp_path, "data")], policy).first is None
