"""Programs of an unusual scale, to be recorded: one step of very many calls, very many parameters,
very many steps, models that come and go. Each prints its CPU seconds and memory as JSON.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

PAGE_MIB = resource.getpagesize() / (1 << 20)
SAMPLES = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """Where a program is.

    Attributes:
        steps: Steps done.
        seconds: CPU time used.
        mebibytes: Memory in use.
    """

    steps: int
    seconds: float
    mebibytes: float


def memory() -> float:
    """MiB of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MIB


class Loop(nn.Module):
    """A few small modules called over and over in one forward pass."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls
        self.cells = nn.ModuleList(nn.Linear(2, 2) for _ in range(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in range(self.calls):
            x = self.cells[number % 10](x)
        return x


def calls(number: int) -> Iterator[None]:
    """One warm-up step of ten calls, and one of ``number``."""
    for size in (10, number):
        model = Loop(size)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        yield


def parameters(number: int, kind: str, foreach: bool) -> Iterator[None]:
    """Steps of a model of ``number`` parameter tensors."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(number // 2)))
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3, foreach=foreach)
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        yield


def steps() -> Iterator[None]:
    """Steps of a tiny model, with its batches from a loader."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    data = torch.utils.data.TensorDataset(torch.randn(400, 4))
    while True:
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            scheduler.step()
            yield


def models() -> Iterator[None]:
    """Two steps each of models, optimizers, schedulers and loaders that come and go."""
    data = torch.utils.data.TensorDataset(torch.randn(8, 4))
    while True:
        yield from _fit(data)


def _fit(data: torch.utils.data.Dataset[tuple[torch.Tensor, ...]]) -> Iterator[None]:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        scheduler.step()
        yield


def run(program: Iterator[None], count: int) -> list[Sample]:
    """Samples at even distances; the first one is taken after a step that warms up."""
    next(program)
    marks = {count * part // SAMPLES for part in range(SAMPLES + 1)}
    found = []
    for done in range(count + 1):
        if done in marks:
            found.append(Sample(done, time.process_time(), memory()))
        if done < count:
            next(program)
    return found


def main() -> None:
    programs: dict[str, Callable[[int], tuple[Iterator[None], int]]] = {
        "calls": lambda number: (calls(number), 1),
        "parameters": lambda number: (parameters(10_000, "AdamW", True), number),
        "parameters-loop": lambda number: (parameters(10_000, "SGD", False), number),
        "steps": lambda number: (steps(), number),
        "models": lambda number: (models(), 2 * number),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=programs)
    parser.add_argument("number", type=int, help="calls, steps or models")
    options = parser.parse_args()
    torch.manual_seed(0)
    found = run(*programs[options.program](options.number))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    samples = [[each.steps, each.seconds, each.mebibytes] for each in found]
    print(json.dumps({"samples": samples, "peak": peak}))


if __name__ == "__main__":
    main()
