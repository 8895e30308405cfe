"""Loader workers that draw random numbers, left early in one epoch and kept alive over epochs."""

import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler


class Noisy(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = random.random() + np.random.default_rng(index).random() + torch.rand(())
        return torch.full((5,), float(index)) + noise, index % 3


class Stream(IterableDataset[Tensor]):
    def __iter__(self):
        yield from torch.arange(40.0).view(8, 5)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> None:
    for number, (inputs, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(inputs / 24), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(number, labels.tolist(), loss.item())
        if number == 3:
            break


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Linear(5, 3)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = DataLoader(Noisy(), 4, shuffle=True, num_workers=2, persistent_workers=True)
    for _ in range(2):
        train(net, sgd, kept)
    weighted = WeightedRandomSampler(torch.arange(1.0, 25.0), 12)
    train(net, sgd, DataLoader(Noisy(), 4, sampler=weighted, num_workers=1))
    train(net, sgd, DataLoader(Noisy(), batch_size=3, shuffle=True))
    print([net(row).sum().item() for row in DataLoader(Stream(), batch_size=None)])
