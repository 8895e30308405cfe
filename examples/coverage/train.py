"""Train on every sample once an epoch; with the bug, on some of them twice."""

import argparse
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--overlap", type=int, default=0, help="the bug: samples that come again")
options = parser.parse_args()


class Shuffled(Sampler[list[int]]):
    """Batches of four, in an order that depends on the epoch."""

    def __init__(self, size: int, overlap: int) -> None:
        self.size, self.overlap, self.epoch = size, overlap, 0

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.epoch))
        for start in range(0, self.size, 4):
            yield order[max(0, start - self.overlap) :][:4].tolist()
        self.epoch += 1

    def __len__(self) -> int:
        return self.size // 4


torch.manual_seed(0)
inputs = torch.randn(32, 6)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
loader = DataLoader(data, batch_sampler=Shuffled(len(data), options.overlap))
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.4f}")
