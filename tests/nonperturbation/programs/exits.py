"""A training that ends in the middle: `exits.py code|message|os|signal|none`."""

import atexit
import os
import signal
import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
atexit.register(print, "at exit")
for step in range(4):
    loss = model(torch.randn(2, 3)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    if step == 3:
        print("leaving", sys.argv, flush=True)
        match sys.argv[1]:
            case "code":
                sys.exit(7)
            case "message":
                sys.exit("that is all")
            case "os":
                os._exit(9)
            case "signal":
                os.kill(os.getpid(), signal.SIGTERM)
            case "interrupt":
                signal.raise_signal(signal.SIGINT)
    optimizer.step()
