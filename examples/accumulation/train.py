"""Train a small regression with large batches, or with small ones whose gradients add up."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--forget-division", action="store_true", help="the bug")
options = parser.parse_args()

torch.manual_seed(0)
inputs = torch.randn(64, 8)
data = TensorDataset(inputs, inputs.square().sum(1, keepdim=True))
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

for number, (x, y) in enumerate(DataLoader(data, batch_size=options.batch_size), 1):
    loss = nn.functional.mse_loss(model(x), y)
    if not options.forget_division:
        loss = loss / options.accumulate
    loss.backward()
    if number % options.accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
        print(f"batch {number}  loss {loss.item():.4f}")
