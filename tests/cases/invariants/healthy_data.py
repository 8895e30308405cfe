"""Sound programs whose data look odd: the same rows again and again, or all alike, or in order."""

import itertools

import torch
from healthy import learn, shuffled
from loops import BATCH, Network, rows
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def full_batch(folder: str) -> None:
    """Without a loader: the same rows at every step, as the method has it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    inputs, targets = rows().tensors
    for _ in range(6):
        learn(model, optimizer, inputs, targets)


def one_batch(folder: str) -> None:
    """A dataset that is one batch, passed over again and again."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = DataLoader(rows(8), BATCH)
    for _ in range(5):
        for inputs, targets in batches:
            learn(model, optimizer, inputs, targets)


def constant(folder: str) -> None:
    """Samples that are all alike, from two workers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TensorDataset(torch.ones(40, 6), torch.ones(40, 1))
    generator = torch.Generator().manual_seed(0)
    for inputs, targets in DataLoader(
        data, BATCH, shuffle=True, num_workers=2, generator=generator
    ):
        learn(model, optimizer, inputs, targets)


def replacement(folder: str) -> None:
    """Samples drawn by weight, with replacement: most of them are the same few."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    weights = [1000.0, *[0.001] * 47]
    for epoch in range(2):
        sampler = WeightedRandomSampler(weights, 48, generator=torch.Generator().manual_seed(epoch))
        for inputs, targets in DataLoader(rows(), BATCH, sampler=sampler):
            learn(model, optimizer, inputs, targets)


def several_updates_a_batch(folder: str) -> None:
    """As in policy optimization: each batch serves three updates."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for inputs, targets in shuffled():
        for _ in range(3):
            learn(model, optimizer, inputs, targets)


def in_order(folder: str) -> None:
    """Not shuffled, epoch after epoch, as it was asked for; a rate set by hand."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = DataLoader(rows(), BATCH)
    for step, (inputs, targets) in enumerate(itertools.chain(batches, batches, batches)):
        optimizer.param_groups[0]["lr"] = 0.05 / (1 + step)
        learn(model, optimizer, inputs, targets)


def made_in_one_place(folder: str) -> None:
    """A loader to train on and one to evaluate with, which no line of the program tells apart."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    parts = [DataLoader(rows(count), BATCH, shuffle=count > 16) for count in (24, 16)]
    # Its shape is looked at, and it is not used.
    next(iter(parts[0]))
    for _ in range(2):
        for inputs, targets in parts[0]:
            learn(model, optimizer, inputs, targets)
        with torch.no_grad():
            for inputs, _ in parts[1]:
                model(inputs)


def first_half(folder: str) -> None:
    """The beginning of a run that goes on elsewhere."""
    _half(folder, 0, 4, f"{folder}/half.pt")


def second_half(folder: str) -> None:
    """A resume in the middle of an epoch; batches that were used before are passed over."""
    _half(folder, 4, 9, "")


def goes_on_with(folder: str, bug: str) -> None:
    """The second half, in which the checkpoint is not all that the run goes on with."""
    _half(folder, 4, 9, "", bug)


def _half(folder: str, first: int, last: int, save: str, bug: str = "") -> None:
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=12)
    parts = {"model": model, "optimizer": optimizer, "scheduler": cycle}
    if first:
        for name, state in torch.load(f"{folder}/half.pt").items():
            if bug != f"{name} not loaded":
                parts[name].load_state_dict(state)
        if bug == "rate overwritten":
            optimizer.param_groups[0]["lr"] = 1e-3
    for step, (inputs, targets) in enumerate(itertools.chain(shuffled(), shuffled(1))):
        if first <= step < last:
            learn(model, optimizer, inputs, targets)
            cycle.step()
    if save:
        torch.save({name: part.state_dict() for name, part in parts.items()}, save)


# `second_half` needs what `first_half` leaves in the folder, and comes after it.
PROGRAMS = (
    full_batch, one_batch, constant, replacement, several_updates_a_batch, in_order,
    made_in_one_place, first_half, second_half,
)  # fmt: skip
