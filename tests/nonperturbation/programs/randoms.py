"""All random streams are drawn from between and inside steps, none of them seeded by the script."""

import random

import numpy as np
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.RReLU(), nn.Dropout(0.5), nn.Linear(4, 1))
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
for step in range(5):
    inputs = torch.randn(3, 4) * random.random() + np.random.rand()
    loss = model(inputs).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), random.random(), np.random.rand(), torch.rand(()).item())
