"""Destination: which file a process writes, when one command may start one process or many."""

import contextlib
import os
from pathlib import Path
from typing import Any

import torch

from traceparity.tracefmt.records import ProcessGroup


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of training processes, as torch or the launcher say."""
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1


def process_groups() -> tuple[ProcessGroup, ...]:
    """The process groups that this process is in, in the order in which they were made."""
    dist: Any = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return ()
    # torch keeps this list to itself; a version that keeps it elsewhere has none to tell.
    with contextlib.suppress(AttributeError, TypeError):
        world = dist.distributed_c10d._world
        return tuple(
            ProcessGroup(
                name=str(getattr(group, "group_desc", "") or ""),
                ranks=tuple(sorted(ranks, key=ranks.__getitem__)),
                backend=str((world.pg_map.get(group) or ("",))[0]),
            )
            for group, ranks in list(world.pg_group_ranks.items())
        )
    return ()


def destination(out: Path, rank: int, world: int) -> tuple[Path, int]:
    """Where this process writes, with the folder made that it needs, and its rank.

    A run of one process is a file. A run of several is a folder; when a second process of a run
    that looked like one comes along, the first one's file moves into the folder under its feet,
    which a file that is open survives. Processes without a launcher are numbered as they come.
    """
    if world == 1 and not out.exists():
        return out, rank
    if out.is_file():
        aside = out.with_name(f"{out.name}.moving-{os.getpid()}")
        aside.mkdir()
        # The numbers that a launcher gives out are for its own processes.
        out.rename(aside / f"rank{world if world > 1 else 0}.trace")
        aside.rename(out)
    out.mkdir(exist_ok=True)
    path, number = _free(out, rank)
    return path, rank if world > 1 else number


def _free(folder: Path, rank: int) -> tuple[Path, int]:
    while (path := folder / f"rank{rank}.trace").exists():
        rank += 1
    return path, rank
