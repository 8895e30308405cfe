"""A closure that is evaluated many times in a step, and a hand-written optimizer."""

import torch
from torch import Tensor, nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
x, y = torch.randn(20, 3), torch.randn(20, 1)
lbfgs = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")


def closure() -> Tensor:
    lbfgs.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


class SignDescent(torch.optim.Optimizer):
    def __init__(self, params) -> None:
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad.sign())


for step in range(3):
    print(step, lbfgs.step(closure).item())
signs = SignDescent(model.parameters())
for step in range(2):
    closure()
    signs.step()
    print(step, nn.functional.mse_loss(model(x), y).item())
