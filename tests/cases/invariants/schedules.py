"""Trainings whose learning rate begins as it should and goes another way later."""

import math
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

_WARM_UP = 4


def train(bug: str = "", seed: int = 0, updates: int = 10) -> None:
    """Warms up, then decays; two micro-batches an update."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    warm_up = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=_WARM_UP)
    decay = lr_scheduler.ExponentialLR(optimizer, 0.5 if bug == "decay too fast" else 0.9)
    turn = _WARM_UP + 2 if bug == "decays too late" else _WARM_UP
    scheduler = lr_scheduler.SequentialLR(optimizer, [warm_up, decay], milestones=[turn])
    for number in range(updates):
        optimizer.zero_grad()
        for _ in range(2):
            (model(torch.randn(4, 4)).square().mean() / 2).backward()
            if bug == "after each pass from then on" and number >= _WARM_UP:
                scheduler.step()
        optimizer.step()
        if bug == "no decay" and number >= _WARM_UP:
            continue
        if bug != "after each pass from then on" or number < _WARM_UP:
            scheduler.step()
        if bug == "set by hand" and number >= _WARM_UP:
            optimizer.param_groups[0]["lr"] = 0.01


class Halving(lr_scheduler.LRScheduler):
    """A schedule of a program's own; ``every`` is nothing that it shows."""

    def __init__(self, optimizer: Any, scheme: dict[str, int]) -> None:
        self.scheme = scheme
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [rate * 0.5 ** (self.last_epoch // self.scheme["every"]) for rate in self.base_lrs]


def by_function(bug: str = "", seed: int = 0, updates: int = 10) -> None:
    """Warms up, then falls as a cosine to the end of the run, as a function says.

    Sound with ``longer``, a warm-up of more updates.
    """
    warm, power = (5 if bug == "longer" else 2), (2 if bug == "falls too fast" else 1)

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return (0.5 * (1 + math.cos(math.pi * (step - warm) / (updates - warm)))) ** power

    rate = 1.0 if bug == "base rate ten times" else 0.1
    _fit(seed, updates, lambda optimizer: lr_scheduler.LambdaLR(optimizer, factor), rate)


def of_its_own(bug: str = "", seed: int = 0, updates: int = 10) -> None:
    """A scheduler that torch does not have."""
    scheme = {"every": 2 if bug else 3}
    _fit(seed, updates, lambda optimizer: Halving(optimizer, scheme))


def _fit(seed: int, updates: int, scheduled: Any, rate: float = 0.1) -> None:
    torch.manual_seed(seed)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    scheduler = scheduled(optimizer)
    for _ in range(updates):
        optimizer.zero_grad()
        model(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
        scheduler.step()
