"""Trainings of two processes on gloo, and the bugs that only several processes have.

``train(bug, seed, rank)`` runs in one process of the group, which the caller has set up.
"""

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from loops import rows
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset

WORLD = 2
BATCH = 4


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))


def own_loader(bug: str, seed: int, rank: int) -> DataLoader[Any]:
    data = rows(32)
    if bug == "no sampler":
        generator = torch.Generator().manual_seed(seed)
        return DataLoader(data, BATCH, shuffle=True, generator=generator)
    if bug == "shards overlap":
        first = rank * 14
        generator = torch.Generator().manual_seed(seed + rank)
        part = Subset(data, range(first, first + 18))
        return DataLoader(part, BATCH, shuffle=True, drop_last=True, generator=generator)
    sampler = DistributedSampler(data, WORLD, rank, shuffle=True, seed=seed)
    return DataLoader(data, BATCH, sampler=sampler)


def moved(model: nn.Module) -> None:
    """To another type and back, with new parameters, as a move between devices makes them."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    model.to(torch.float64).to(torch.float32)
    torch.__future__.set_overwrite_module_params_on_conversion(False)


def train(bug: str, seed: int, rank: int) -> None:
    torch.manual_seed(seed)
    model = network()
    wrapped: nn.Module = DistributedDataParallel(model)
    if bug == "hooks lost":
        moved(model)
    if bug == "wrapper bypassed":
        wrapped = model
    fit(bug, model, wrapped, own_loader(bug, seed, rank), rank)


def alone(bug: str, seed: int) -> None:
    """The same training in one process, on all samples."""
    torch.manual_seed(seed)
    data, model = rows(32), network()
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data, 1, 0, seed=seed))
    fit(bug, model, model, loader)


def fit(
    bug: str, model: nn.Module, wrapped: nn.Module, loader: DataLoader[Any], rank: int = 0
) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    for epoch in range(2):
        if bug != "set_epoch missing" and isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            functional.mse_loss(wrapped(inputs), targets).backward()
            if bug != "clipped on one rank" or rank == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            step += 1
            if bug == "replica corrupted" and rank == 1 and step == 3:
                with torch.no_grad():
                    model[2].weight[0, 3] += 1e-3


def accumulated(bug: str, seed: int, rank: int) -> None:
    """Micro-batches without reduction, but for the last one of each window."""
    torch.manual_seed(seed)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for number, (inputs, targets) in enumerate(own_loader("", seed, rank)):
        last = number % 2 == 1
        with contextlib.nullcontext() if last else model.no_sync():
            functional.mse_loss(model(inputs), targets).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            if bug != "rate on one rank" or rank == 0:
                scheduler.step()


def local(bug: str, seed: int, rank: int) -> None:
    """Parameters are averaged every other step only; between, the replicas differ as they may."""
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (inputs, targets) in enumerate(own_loader("", seed, rank)):
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        if number % 2:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= WORLD


class Experts(nn.Module):
    """Sends rows to the other rank's expert and back; in the fault one rank sends more."""

    def __init__(self, bug: str, rank: int) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 6)
        torch.manual_seed(100 + rank)
        self.expert = nn.Linear(6, 6)
        self.sent = 3 if bug and rank else 2

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        value = self.gate(inputs)
        away = value[: self.sent].detach()
        sizes = torch.zeros(WORLD, dtype=torch.long)
        sizes[1 - dist.get_rank()] = self.sent
        taken = torch.zeros_like(sizes)
        dist.all_to_all_single(taken, sizes)
        got = torch.empty(int(taken.sum()), 6)
        dist.all_to_all_single(got, away, taken.tolist(), sizes.tolist())
        return self.expert(torch.cat([value, got]))


def experts(bug: str, seed: int, rank: int) -> None:
    torch.manual_seed(seed)
    model = Experts(bug, rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
