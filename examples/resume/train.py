"""Train a small classifier; write a checkpoint at the end, or go on from one."""

import argparse
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--resume", type=Path)
parser.add_argument("--forget-schedule", action="store_true", help="the bug")
options = parser.parse_args()

torch.manual_seed(0)
inputs = torch.randn(64, 10)
labels = inputs[:, :3].argmax(1)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
step = 0

if options.resume:
    state = torch.load(options.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if not options.forget_schedule:
        schedule.load_state_dict(state["schedule"])
    torch.set_rng_state(state["rng"])
    step = state["step"]

while step < options.steps:
    rows = torch.arange(8 * step, 8 * step + 8) % 64
    loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"step {step}  loss {loss.item():.4f}")
    step += 1

state = {
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "schedule": schedule.state_dict(),
    "rng": torch.get_rng_state(),
    "step": step,
}
torch.save(state, options.out / "last.pt")
