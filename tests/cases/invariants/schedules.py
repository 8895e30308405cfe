"""Trainings whose learning rate begins as it should and goes another way later."""

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
    scheduler = lr_scheduler.SequentialLR(optimizer, [warm_up, decay], milestones=[_WARM_UP])
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
