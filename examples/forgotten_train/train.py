"""Train and validate after each epoch; `--forget-train` stays in eval mode after a validation."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--forget-train", action="store_true")
options = parser.parse_args()

torch.manual_seed(0)
x = torch.randn(48, 10)
data = TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())
loader = DataLoader(data, batch_size=12, shuffle=True)
model = nn.Sequential(
    nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def validate() -> float:
    model.eval()
    right = model(x).argmax(1) == data.tensors[1]
    if not options.forget_train:
        model.train()
    return right.float().mean().item()


for epoch in range(3):
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {validate():.3f}")
