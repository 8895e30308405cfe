"""A gradient scaler that skips an update, autocast, accumulation and clipping of both kinds."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=2)
for step in range(6):
    for micro in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(4, 8)).square().mean() / 2
        if step == 2 and micro == 1:
            loss = loss * torch.inf
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(step, loss.item(), norm.item(), scaler.get_scale())
