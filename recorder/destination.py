"""Destination: which file a process writes, when one command may start one process or many."""

import os
from pathlib import Path

import torch


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of training processes, as torch or the launcher say."""
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1


def destination(out: Path, rank: int, world: int) -> Path:
    """Where this process writes, with the folder made that it needs.

    A run of one process is a file. A run of several is a folder; when a second process of a run
    that looked like one comes along, the first one's file moves into the folder under its feet,
    which a file that is open survives.
    """
    if world > 1 or out.is_dir():
        out.mkdir(parents=True, exist_ok=True)
        return _free(out, rank)
    if out.exists():
        aside = out.with_name(f"{out.name}.moving-{os.getpid()}")
        out.rename(aside)
        out.mkdir(exist_ok=True)
        aside.rename(_free(out, 0))
        return _free(out, rank)
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def _free(folder: Path, rank: int) -> Path:
    while (path := folder / f"rank{rank}.trace").exists():
        rank += 1
    return path
