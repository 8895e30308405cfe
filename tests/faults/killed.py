"""Fork recordings from one process that has imported torch, and kill each at a random moment.

    killed.py FOLDER COUNT SEED

Prints a JSON line for each: the trace and how many updates the child had made, by its own account,
when it died.
"""

import gc
import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

import traceparity

MOST_UPDATES = 25
"""Updates that a child may finish before its end is near."""
FIRST, LATER = 0.15, 0.03
"""Seconds in which the end may come: an update takes some ten milliseconds, the first one more."""


def warm_up(trace: Path) -> None:
    """Load, in the parent, what a recording loads when it begins."""
    model = nn.Linear(1, 1)
    torch.optim.AdamW(model.parameters())
    with traceparity.record(trace):
        model(torch.ones(1, 1))
    trace.unlink()


def train_for_ever(trace: Path, pipe: int) -> None:
    """The child: record, and tell of every finished update."""
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    with traceparity.record(trace):
        os.write(pipe, b"r")
        while True:
            loss = model(torch.randn(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            os.write(pipe, b"u")


def wait_for(pipe: int, updates: int) -> bytes:
    """All that the child writes until it has finished so many updates."""
    told = b""
    while told.count(b"u") < updates and (more := os.read(pipe, 4096)):
        told += more
    return told


def drain(pipe: int, until: float) -> bytes:
    """All that the child writes until a moment, so that it never waits for a full pipe."""
    told = b""
    while (left := until - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            told += os.read(pipe, 4096)
    return told


def kill_one(trace: Path, updates: int, delay: float) -> int:
    """Let a child finish some updates, kill it within the next; returns how many it told of."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            train_for_ever(trace, theirs)
        finally:
            os._exit(1)
    os.close(theirs)
    began = os.read(ours, 1)
    told = wait_for(ours, updates)
    told += drain(ours, time.monotonic() + delay)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    told += os.read(ours, 1 << 16)
    os.close(ours)
    if began != b"r" or os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        sys.exit(f"a child ended by itself: {status} after {told!r}")
    return told.count(b"u")


def main() -> None:
    folder, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    moments = random.Random(seed)
    warm_up(folder / "warm.trace")
    # What git says of the folder takes each child longer than its training.
    os.environ["PATH"] = ""
    gc.freeze()  # so that children need no copies of what lives in the parent
    for number in range(count):
        trace = folder / f"{number}.trace"
        # Mostly early, since each update costs time and a later one is killed no otherwise.
        wait = int(MOST_UPDATES * moments.random() ** 3)
        updates = kill_one(trace, wait, moments.uniform(0, LATER if wait else FIRST))
        print(json.dumps({"trace": str(trace), "updates": updates}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
