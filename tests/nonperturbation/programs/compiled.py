"""A compiled model and a compiled function."""

import torch
from torch import Tensor, nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


@torch.compile(backend="eager")
def penalty(weight: Tensor) -> Tensor:
    return weight.abs().sum() * 1e-3


for step in range(4):
    loss = compiled(torch.randn(8, 8)).square().mean() + penalty(model[0].weight)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
