"""In-place operations on what modules take and give, which full backward hooks make impossible."""

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.1, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(self.relu(x))))
        y = self.drop(self.conv2(y))
        y += x
        y.view(-1).mul_(0.5)
        return y


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), Residual(), Residual(), nn.Flatten(), nn.Linear(144, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
for step in range(4):
    loss = nn.functional.cross_entropy(model(torch.randn(6, 1, 8, 8)), torch.randint(3, (6,)))
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(step, loss.item())
