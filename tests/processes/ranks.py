"""Runs of several processes, forked from a warm one: a start of torch costs seconds."""

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# Imported once, before the processes are forked.
from torch.distributed.tensor import parallel  # noqa: F401

import traceparity
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy
from traceparity.differ.policy_file import read_policy
from traceparity.differ.result import DiffResult


@dataclass(frozen=True, slots=True)
class Ranks:
    """Runs functions in several processes that form a group, and keeps what they record."""

    folder: Path

    def run(self, name: str, world: int, body: Callable[[], Any], **options: Any) -> Path:
        """Record ``body`` in ``world`` processes; returns the folder of their traces."""
        trace = self.folder / f"{name}.trace"
        trace.mkdir(exist_ok=True)

        def recorded(rank: int) -> None:
            with traceparity.record(trace / f"rank{rank}.trace", overwrite=True, **options):
                body()

        self.fork(name, world, recorded)
        return trace

    def alone(self, name: str, body: Callable[[], Any], **options: Any) -> Path:
        """Record ``body`` in one process without a group; returns its trace."""
        trace = self.folder / f"{name}.trace"
        with traceparity.record(trace, overwrite=True, **options):
            body()
        return trace

    def plain(self, name: str, world: int, body: Callable[[], Any]) -> None:
        """Run ``body`` in ``world`` processes and record nothing."""
        self.fork(name, world, lambda _: body())

    def fork(self, name: str, world: int, body: Callable[[int], None]) -> None:
        store = self.folder / f"{name}.store"
        store.unlink(missing_ok=True)
        children = [self._start(store, rank, world, body) for rank in range(world)]
        statuses = [os.waitpid(child, 0)[1] for child in children]
        errors = [path.read_text() for path in self.folder.glob(f"{name}.store.*.error")]
        assert statuses == [0] * world, "\n".join(errors)

    def _start(self, store: Path, rank: int, world: int, body: Callable[[int], None]) -> int:
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            dist.init_process_group(
                "gloo", init_method=f"file://{store}", rank=rank, world_size=world
            )
            body(rank)
            dist.destroy_process_group()
            status = 0
        except BaseException:  # noqa: BLE001 - the parent tells of it
            store.with_name(f"{store.name}.{rank}.error").write_text(traceback.format_exc())
        finally:
            sys.stderr.flush()
            os._exit(status)

    def diff(self, reference: Path, target: Path, policy: str) -> DiffResult:
        """Compare under a policy, given as the text of a policy file."""
        return diff_runs(reference, [target], self.policy(policy))

    def policy(self, text: str) -> Policy:
        path = self.folder / "policy.toml"
        path.write_text(text)
        return read_policy(path)


def digest_of_state(model: torch.nn.Module) -> str:
    """All bits of a model's parameters, buffers and gradients that this process holds."""
    parts = []
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        for tensor in (value, value.grad):
            local = getattr(tensor, "_local_tensor", tensor)
            held = None if local is None else local.detach().clone().numpy().tobytes()
            parts.append((name, held))
    return repr(parts)
