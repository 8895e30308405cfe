"""DistributedDataParallel: what is seen of its reduction, and that recording changes no bit."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, digest_of_state
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from traceparity.tracefmt.reader import Trace, open_trace
from traceparity.tracefmt.records import Flag, Phase

# `broadcast_buffers` has a new name, and is in use all the same.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class Net(nn.Module):
    """Has statistics, and a layer that is used now and then only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(5, 7), nn.BatchNorm1d(7)
        self.rarely, self.last = nn.Linear(7, 7), nn.Linear(7, 2)

    def forward(self, x: torch.Tensor, detour: bool = False) -> torch.Tensor:
        h = torch.relu(self.norm(self.first(x)))
        result: torch.Tensor = self.last(self.rarely(h) if detour else h)
        return result


def train(
    steps: int = 3,
    *,
    micro_batches: int = 1,
    detours: bool = True,
    prepare: Callable[[DistributedDataParallel], object] = lambda _: None,
    **options: Any,
) -> nn.Module:
    model = DistributedDataParallel(Net(), **options)
    prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    joining = Join([model]) if steps != 3 else nullcontext()
    with joining:
        for step in range(steps):
            optimizer.zero_grad()
            for number in range(micro_batches):
                last = number == micro_batches - 1
                with nullcontext() if last else model.no_sync():
                    x = torch.randn(4, 5, generator=generator)
                    model(x, not detours or step % 2 == dist.get_rank()).square().sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 50.0)
            optimizer.step()
    return model


def joined() -> nn.Module:
    """The second rank has fewer batches and shadows the reductions of the first one."""
    return train(4 - 2 * dist.get_rank(), detours=False)


VARIANTS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: train(detours=False),
    "accumulated": lambda: train(micro_batches=3, detours=False),
    "unused parameters": lambda: train(find_unused_parameters=True),
    "views of buckets": lambda: train(detours=False, gradient_as_bucket_view=True),
    "static graph": lambda: train(detours=False, static_graph=True),
    "many buckets": lambda: train(detours=False, bucket_cap_mb=0.0001),
    "own buffers": lambda: train(detours=False, broadcast_buffers=False),
    "compressed": lambda: train(
        detours=False, prepare=lambda model: model.register_comm_hook(None, fp16_compress_hook)
    ),
    "joined": joined,
}
QUICK = {"accumulated", "unused parameters", "joined"}


@pytest.mark.parametrize(
    "variant",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS],
)
def test_recording_changes_no_bit(variant: str, ranks: Ranks) -> None:
    def body() -> None:
        told = digest_of_state(VARIANTS[variant]())
        (ranks.folder / f"{name}{dist.get_rank()}").write_text(told)

    name = "plain"
    ranks.plain(name, 2, body)
    name = "recorded"
    folder = ranks.run(name, 2, body)

    for rank in range(2):
        texts = [(ranks.folder / f"{which}{rank}").read_text() for which in ("plain", "recorded")]
        assert texts[0] == texts[1]
        with open_trace(folder / f"rank{rank}.trace") as trace:
            assert trace.complete, trace.incomplete_reason


def digests(trace: Trace, phase: Phase, field: str, step: int = 0) -> dict[Any, bytes]:
    """Digests of a phase by component and micro-batch."""
    columns = trace.columns(step)
    return {
        (site.component, int(columns.microbatch[row])): columns.digest[row].tobytes()
        for row in range(len(columns))
        if (site := trace.sites[columns.site[row]].site).phase == phase and site.field == field
        if not columns.flags[row] & Flag.CONTEXT
    }


def both(folder: Path, phase: Phase, field: str, step: int = 0) -> list[dict[Any, bytes]]:
    found = []
    for rank in range(2):
        with open_trace(folder / f"rank{rank}.trace") as trace:
            found.append(digests(trace, phase, field, step))
    return found


@pytest.mark.parametrize("variant", ["plain", "accumulated", "views of buckets"])
def test_the_optimizer_is_seen_to_receive_what_was_reduced(variant: str, ranks: Ranks) -> None:
    folder = ranks.run("run", 2, VARIANTS[variant])

    left, right = both(folder, Phase.BACKWARD, "grad")
    assert left.keys() == right.keys()
    assert all(left[key] != right[key] for key in left)
    left, right = both(folder, Phase.GRADIENT, "grad")
    assert left == right
    assert len(left) == 8


def test_each_pass_without_reduction_is_a_micro_batch(ranks: Ranks) -> None:
    folder = ranks.run("run", 2, VARIANTS["accumulated"])

    with open_trace(folder / "rank0.trace") as trace:
        assert [step.micro_batches for step in trace.steps] == [3, 3, 3]
        passes = {micro for _, micro in digests(trace, Phase.BACKWARD, "grad")}
    assert passes == {0, 1, 2}


def test_a_parameter_that_one_rank_did_not_use_has_the_gradient_of_the_other(
    ranks: Ranks,
) -> None:
    folder = ranks.run("run", 2, VARIANTS["unused parameters"])

    left, right = both(folder, Phase.BACKWARD, "grad")
    assert ("rarely.weight", 0) in left
    assert ("rarely.weight", 0) not in right
    left, right = both(folder, Phase.GRADIENT, "grad")
    assert left[("rarely.weight", 0)] == right[("rarely.weight", 0)]


def test_buffers_that_are_broadcast_are_those_of_the_first_rank(ranks: Ranks) -> None:
    """Each forward pass gives every rank statistics of its own, the next one takes them away."""
    folder = ranks.run("run", 2, VARIANTS["plain"])

    left, right = both(folder, Phase.FORWARD, "value", 1)
    assert left[("norm.running_mean", 0)] != right[("norm.running_mean", 0)]
    left, right = both(folder, Phase.OPTIMIZER, "value", 2)
    assert left == right


def test_what_judges_replicas_is_in_the_traces(ranks: Ranks) -> None:
    """Parameters, optimizer state and rates by name at the end of each step, and the groups."""
    folder = ranks.run("run", 2, VARIANTS["plain"])

    fields = set()
    for rank in range(2):
        with open_trace(folder / f"rank{rank}.trace") as trace:
            assert [group.ranks for group in trace.header.groups] == [(0, 1)]
            assert (trace.header.rank, trace.header.world_size) == (rank, 2)
            columns = trace.columns(2)
            fields |= {
                (site.component, site.field)
                for row in range(len(columns))
                if (site := trace.sites[columns.site[row]].site).phase == Phase.OPTIMIZER
            }
    assert {
        ("first.weight", "value"),
        ("optimizer[0]", "exp_avg[first.weight]"),
        ("optimizer[0] group[0]", "lr"),
    } <= fields
