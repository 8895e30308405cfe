"""A training that is stopped after two of four updates and goes on, with a fault of each sort.

The noise of the targets comes from three generators, the samples from a cursor, and a number that
is kept in the module alone scales the loss.
"""

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

SPLIT, TOTAL = 2, 4
FAULTS = {
    "model": "state::weight|state:weight:value",
    "optimizer": "state:optimizer[0] group[0]:lr|state:optimizer[0]:momentum_buffer",
    "scheduler": "state:scheduler.last_epoch:value|optimizer[0] group[0]:lr",
    "python": "loss:loss:value",
    "numpy": "loss:loss:value",
    "torch": "loss:loss:value",
    "cursor": "forward::input[0]",
    "rates": "optimizer[0] group[0]:lr",
    "extra": "state:scheduler.last_epoch:value",
    "hidden": "loss:loss:value",
}
"""What is not restored, or wrongly, and where the runs part by it: in step 2, the first resumed."""

HIDDEN = {"counter": 0}


class Training:
    def __init__(self) -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        HIDDEN["counter"] = 0
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(
            [
                {"params": [self.model.weight], "lr": 0.04},
                {"params": [self.model.bias], "lr": 0.02},
            ],
            momentum=0.8,
        )
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.7)
        self.cursor = 0
        self.data = torch.linspace(-1, 1, 33).reshape(11, 3)

    def update(self) -> None:
        ids = [(self.cursor + offset) % 11 for offset in range(2)]
        self.cursor += 2
        HIDDEN["counter"] += 1
        noise = torch.randn(2, 1) + random.random() + float(np.random.rand())
        error = self.model(self.data[ids]) - noise
        self.optimizer.zero_grad()
        (error.square().mean() * (1 + 0.1 * HIDDEN["counter"])).backward()
        self.optimizer.step()
        self.scheduler.step()

    def saved(self) -> dict[str, Any]:
        return copy.deepcopy(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "python": random.getstate(),
                "numpy": np.random.get_state(),
                "torch": torch.get_rng_state(),
                "cursor": self.cursor,
                "hidden": HIDDEN["counter"],
            }
        )

    def restore(self, state: dict[str, Any], fault: str) -> None:
        if fault != "model":
            self.model.load_state_dict(state["model"])
        if fault != "optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
        if fault != "scheduler":
            self.scheduler.load_state_dict(state["scheduler"])
        if fault != "python":
            random.setstate(state["python"])
        if fault != "numpy":
            np.random.set_state(state["numpy"])
        if fault != "torch":
            torch.set_rng_state(state["torch"])
        self.cursor = state["cursor"] + (fault == "cursor")
        HIDDEN["counter"] = 0 if fault == "hidden" else state["hidden"]
        if fault == "rates":
            first, second = self.optimizer.param_groups
            first["lr"], second["lr"] = second["lr"], first["lr"]
        if fault == "extra":
            self.scheduler.step()


def train(variant: str, folder: str) -> None:
    training, path = Training(), Path(folder) / "split.pt"
    if variant in ("whole", "split"):
        for _ in range(TOTAL if variant == "whole" else SPLIT):
            training.update()
        if variant == "split":
            torch.save(training.saved(), path)
        return
    training.restore(torch.load(path, weights_only=False), variant)
    for _ in range(TOTAL - SPLIT):
        training.update()
