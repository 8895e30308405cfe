"""A training whose functions are watched, and what can go wrong with their calls."""

import contextlib
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WATCHED = ("prepare", "smooth", "rescale", "Trainer.update", "Trainer.evaluate")
_SHARED = torch.ones(4, 4)


def prepare(x, strength=0.1):
    return x + strength * torch.randn_like(x)


@torch.no_grad()
def _averaged(average, model, decay):
    for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
        mean.mul_(decay).add_(parameter, alpha=1 - decay)


def smooth(average, model, decay=0.9):
    _averaged(average, model, decay)


def rescale(model, top):
    if top < 0:
        raise ValueError(top)
    return nn.utils.clip_grad_norm_(model.parameters(), top)


class Trainer:
    """Trains and evaluates, with a bug or without."""

    def __init__(self, model, bug):
        self.model, self.bug = model, bug
        self.average = copy.deepcopy(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def update(self, x, y):
        nn.functional.mse_loss(self.model(x), y).backward()
        if self.bug == "raises":
            with contextlib.suppress(ValueError):
                rescale(self.model, -1.0)
        elif self.bug not in ("made elsewhere", "left out"):
            rescale(self.model, 100.0 if self.bug == "another argument" else 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        for x, _ in loader:
            self.model(x)
        self.model.train()


def train(bug="", seed=0, epochs=2, batch=4):
    torch.manual_seed(seed)
    data = TensorDataset(torch.randn(24, 4), torch.randn(24, 2))
    loader = DataLoader(data, batch_size=batch, shuffle=True)
    trainer = Trainer(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), bug)
    step = 0
    for _ in range(epochs):
        for x, y in loader:
            if bug == "too late":
                trainer.update(x, y)
            given = _SHARED if bug == "one tensor" else x
            with torch.set_grad_enabled(bug != "without gradients"):
                x = prepare(given, 0.5) if bug == "no default" else prepare(given)
            if bug != "too late":
                trainer.update(x, y)
            for _ in range(2 if bug == "twice" else 0 if bug == "not called" and step > 3 else 1):
                smooth(trainer.average, trainer.model)
            if bug == "made elsewhere":
                rescale(trainer.model, 1.0)
            step += 1
        trainer.evaluate(DataLoader(data, batch_size=12))
