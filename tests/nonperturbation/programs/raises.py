"""A training that ends in an exception inside a module, after one inside backward was caught."""

import sys
import warnings

import torch
from torch import Tensor, nn


class Moody(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 4:
            raise ValueError("enough")
        return self.inner(x)


torch.manual_seed(0)
model = nn.Sequential(Moody(), nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    loss = model(torch.randn(2, 3)).sum()
    optimizer.zero_grad()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        print(str(error)[:40], file=sys.stderr)
    optimizer.step()
    warnings.warn("a warning of the program", stacklevel=1)
    print(step, loss.item())
