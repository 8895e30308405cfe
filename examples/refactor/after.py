"""The same network after a clean-up: other names, a Sequential for a loop, the same mathematics."""

import argparse

import torch
from torch import Tensor, nn

parser = argparse.ArgumentParser()
parser.add_argument("--gelu", action="store_true", help="one more change slips in: no ReLU")
options = parser.parse_args()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        activation = nn.GELU() if options.gelu else nn.ReLU()
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), activation, nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(3)))
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(x))


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for step in range(5):
    inputs = torch.randn(8, 16)
    loss = (model(inputs).squeeze(1) - inputs.sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
