"""Small training scripts for the tests: each is written to a file and run by a real process."""

TRAIN = """
import argparse, sys, time
from pathlib import Path
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--out", type=Path)
parser.add_argument("--resume", type=Path)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--forget", default="")
parser.add_argument("--noise", action="store_true")
options = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randn(8, 1))
loader = torch.utils.data.DataLoader(data, batch_size=2)
step = 0
if options.resume:
    state = torch.load(options.resume)
    model.load_state_dict(state["model"])
    if options.forget != "optimizer":
        optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
while step < options.steps:
    for number, (x, y) in enumerate(loader):
        if number != step % 4 or step == options.steps:
            continue
        if options.noise:
            chance = torch.Generator().manual_seed(time.time_ns())
            x = x + 1e-6 * torch.randn(x.shape, generator=chance)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}")
        step += 1
if options.out:
    options.out.mkdir(parents=True, exist_ok=True)
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
        options.out / "last.pt",
    )
"""
