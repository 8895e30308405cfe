"""One process against several: samples over all ranks, gradients as reduced, parameters."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from parallel_trainings import BATCH, network
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from traceparity.differ.result import Outcome

POLICY = """
[align]
ranks = "replicated"

[[compare]]
site = "*"
rel_l2 = 1e-4

[[compare]]
site = "*:optimizer[*] group[*"
"""
EPOCHS, SAMPLES = 2, 24


def samples() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(SAMPLES, 6, generator=generator), torch.randn(SAMPLES, 3, generator=generator)
    )


def loader(rank: int, world: int, *, reshuffle: bool = True) -> tuple[Any, Callable[[int], None]]:
    sampler: Any = DistributedSampler(samples(), world, rank, shuffle=True, seed=5)
    pieces = DataLoader(samples(), BATCH // world, sampler=sampler)
    return pieces, sampler.set_epoch if reshuffle else lambda _: None


def train(fault: str = "", *, rank: int = 0, world: int = 1) -> nn.Module:
    inner = network()
    model: nn.Module = DistributedDataParallel(inner) if world > 1 else inner
    called = inner if fault == "wrapper bypassed" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches, set_epoch = loader(rank, world, reshuffle=fault != "epoch never set")
    for epoch in range(EPOCHS):
        set_epoch(epoch)
        for inputs, targets in batches:
            optimizer.zero_grad()
            halves = inputs.chunk(2), targets.chunk(2)
            for number, (x, y) in enumerate(zip(*halves, strict=True)):
                last = number == 1
                local = world > 1 and (last if fault == "last not reduced" else not last)
                with model.no_sync() if local else nullcontext():  # type: ignore[operator]
                    loss = nn.functional.mse_loss(called(x), y) / 2
                    if fault == "scaled twice":
                        loss = loss / world
                    loss.backward()
            optimizer.step()
    return inner


def distributed(fault: str = "") -> Callable[[], nn.Module]:
    return lambda: train(fault, rank=dist.get_rank(), world=dist.get_world_size())


@pytest.fixture(scope="module")
def reference(shared_ranks: Ranks) -> Path:
    return shared_ranks.alone("alone", train)


@pytest.mark.parametrize("world", [2, 4])
def test_a_sound_distributed_run_is_equal_to_that_of_one_process(
    world: int, reference: Path, shared_ranks: Ranks
) -> None:
    target = shared_ranks.run(f"sound{world}", world, distributed())

    result = shared_ranks.diff(reference, target, POLICY)

    assert result.outcome is Outcome.PASS, result.reason
    assert result.compared.ranks == world
    assert any("not compared" in note for note in result.notes)


@pytest.mark.parametrize(
    ("fault", "step", "phase"),
    [
        ("epoch never set", 3, "data"),
        ("wrapper bypassed", 0, "gradient"),
        ("scaled twice", 0, "gradient"),
        ("last not reduced", 0, "gradient"),
    ],
)
def test_a_fault_of_distribution_is_found_at_its_place(
    fault: str, step: int, phase: str, reference: Path, shared_ranks: Ranks
) -> None:
    target = shared_ranks.run(fault, 2, distributed(fault))

    result = shared_ranks.diff(reference, target, POLICY)

    assert result.outcome is Outcome.FAIL, result.reason
    assert result.first is not None
    assert (result.first.step, result.first.phase) == (step, phase)
    if phase == "data":
        assert result.first.component == "loader[0]"
        assert result.first.field == "sample_ids"
        assert "only in the reference: [" in result.first.evidence[0].detail


def test_samples_that_every_rank_has_are_missing_from_the_step(
    reference: Path, shared_ranks: Ranks
) -> None:
    """Without a distributed sampler each rank trains on the same half of the batch."""

    def alike() -> nn.Module:
        model = DistributedDataParallel(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for inputs, targets in DataLoader(samples(), BATCH // 2):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        return model

    result = shared_ranks.diff(reference, shared_ranks.run("alike", 2, alike), POLICY)

    assert result.first is not None
    assert (result.first.step, result.first.phase, result.first.kind) == (0, "data", "sample_id")
