"""Collectives of the program are observed with what goes in and comes out; those of torch not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from parallel_trainings import batches, fit, fully_sharded, network, replicated
from ranks import Ranks, digest_of_state
from torch import nn
from torch.distributed.nn.functional import all_reduce as differentiable_all_reduce
from torch.nn.parallel import DistributedDataParallel

from traceparity.tracefmt.reader import Trace, open_trace
from traceparity.tracefmt.records import Flag, Kind

# Names that torch has replaced are in use all the same.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:FSDP2-wrapped module")

NAMES = {
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather",
    "scatter", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single",
    "barrier", "monitored_barrier", "all_gather_object", "gather_object", "scatter_object_list",
    "broadcast_object_list",
}  # fmt: skip


def told(trace: Trace) -> list[tuple[str, str, str, Any]]:
    return rows_of(trace, NAMES)


def rows_of(trace: Trace, names: set[str]) -> list[tuple[str, str, str, Any]]:
    """Phase, component, field and values of all rows of these components, in their order."""
    found = []
    for step in trace.steps:
        columns = trace.columns(step.number)
        for row in range(len(columns)):
            site = trace.sites[columns.site[row]].site
            if site.component not in names:
                continue
            assert columns.flags[row] & Flag.CONTEXT
            if columns.kind[row] == Kind.TENSOR:
                data = trace.value(columns, row)
                value: Any = None if data is None else numbers(data)
            else:
                value = trace.scalar(columns, row)
            found.append((site.phase.label, site.component, site.field, value))
    return found


def numbers(data: bytes) -> list[float]:
    values: list[float] = torch.frombuffer(bytearray(data), dtype=torch.float32).tolist()
    return values


def each_kind(step: int) -> None:
    """Every collective once, between the backward pass and the update."""
    if step:
        return
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor([1.0 + rank])
    two = [torch.zeros(1) for _ in range(world)]
    dist.all_reduce(mine.clone(), op=dist.ReduceOp.MAX)
    dist.reduce(mine.clone(), dst=1)
    dist.broadcast(torch.full((1,), 7.0 + rank), src=1)
    dist.all_gather(two, mine)
    dist.all_gather_into_tensor(torch.zeros(world), mine)
    dist.gather(mine, two if rank == 0 else None)
    dist.scatter(torch.zeros(1), [mine, mine * 2] if rank == 0 else None)
    dist.reduce_scatter_tensor(torch.zeros(1), torch.arange(2.0))
    dist.all_to_all_single(torch.zeros(2), torch.arange(2.0) + 10 * rank)
    dist.barrier()
    dist.all_gather_object([None] * world, {"rank": rank})
    handle = dist.all_reduce(mine.clone(), async_op=True)
    dist.barrier()
    handle.wait()


def with_each_kind() -> nn.Module:
    return fit(
        DistributedDataParallel(network()),
        batches(dist.get_rank(), dist.get_world_size()),
        before_update=each_kind,
    )


@pytest.fixture(scope="module")
def folder(shared_ranks: Ranks) -> Path:
    return shared_ranks.run("each", 2, with_each_kind)


def test_every_collective_tells_what_goes_in_and_comes_out(folder: Path) -> None:
    both = [0, 1]
    with open_trace(folder / "rank0.trace") as trace:
        assert told(trace) == [
            ("gradient", "all_reduce", "group", {"op": "max", "ranks": both}),
            ("gradient", "all_reduce", "input[0]", [1.0]),
            ("gradient", "all_reduce", "output[0]", [2.0]),
            ("gradient", "reduce", "group", {"op": "sum", "ranks": both, "root": 1}),
            ("gradient", "reduce", "input[0]", [1.0]),
            ("gradient", "broadcast", "group", {"ranks": both, "root": 1}),
            ("gradient", "broadcast", "output[0]", [8.0]),
            ("gradient", "all_gather", "group", {"ranks": both}),
            ("gradient", "all_gather", "input[0]", [1.0]),
            ("gradient", "all_gather", "output[0]", [1.0]),
            ("gradient", "all_gather", "output[1]", [2.0]),
            ("gradient", "all_gather_into_tensor", "group", {"ranks": both}),
            ("gradient", "all_gather_into_tensor", "input[0]", [1.0]),
            ("gradient", "all_gather_into_tensor", "output[0]", [1.0, 2.0]),
            ("gradient", "gather", "group", {"ranks": both, "root": 0}),
            ("gradient", "gather", "input[0]", [1.0]),
            ("gradient", "gather", "output[0]", [1.0]),
            ("gradient", "gather", "output[1]", [2.0]),
            ("gradient", "scatter", "group", {"ranks": both, "root": 0}),
            ("gradient", "scatter", "input[0]", [1.0]),
            ("gradient", "scatter", "input[1]", [2.0]),
            ("gradient", "scatter", "output[0]", [1.0]),
            ("gradient", "reduce_scatter_tensor", "group", {"op": "sum", "ranks": both}),
            ("gradient", "reduce_scatter_tensor", "input[0]", [0.0, 1.0]),
            ("gradient", "reduce_scatter_tensor", "output[0]", [0.0]),
            ("gradient", "all_to_all_single", "group", {"ranks": both}),
            ("gradient", "all_to_all_single", "input[0]", [0.0, 1.0]),
            ("gradient", "all_to_all_single", "output[0]", [0.0, 10.0]),
            ("gradient", "barrier", "called", True),
            ("gradient", "all_gather_object", "called", True),
            ("gradient", "all_reduce", "group", {"op": "sum", "ranks": both}),
            ("gradient", "all_reduce", "input[0]", [1.0]),
            ("gradient", "barrier", "called", True),
            ("gradient", "all_reduce", "output[0]", [3.0]),
        ]


def test_only_the_root_gives_or_gets(folder: Path) -> None:
    with open_trace(folder / "rank1.trace") as trace:
        rows = [(name, field, value) for _, name, field, value in told(trace)]

    assert ("broadcast", "input[0]", [8.0]) in rows
    assert ("reduce", "output[0]", [3.0]) in rows
    assert not any(name == "gather" and field.startswith("output") for name, field, _ in rows)
    assert not any(name == "scatter" and field.startswith("input") for name, field, _ in rows)


@pytest.mark.parametrize("training", [replicated, fully_sharded])
def test_collectives_of_torch_itself_are_no_calls_of_the_program(
    training: Callable[[], nn.Module], ranks: Ranks
) -> None:
    folder = ranks.run("silent", 2, training)

    with open_trace(folder / "rank0.trace") as trace:
        assert told(trace) == []


def test_a_collective_is_told_where_in_the_step_it_is(ranks: Ranks) -> None:
    """In a forward pass, in its backward pass, and after the update."""

    class Shared(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = differentiable_all_reduce(x)
            return result

    def body() -> None:
        model = nn.Sequential(nn.Linear(2, 2), Shared())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())

    with open_trace(ranks.run("phases", 2, body) / "rank0.trace") as trace:
        phases = [phase for phase, _, field, _ in told(trace) if field == "output[0]"]

    assert phases == ["forward", "backward", "scheduler"]


def test_a_result_that_nobody_waited_for_is_said_to_be_unseen(ranks: Ranks) -> None:
    def body() -> None:
        def careless(_: int) -> None:
            handle = dist.all_reduce(torch.ones(1), async_op=True)
            handle.get_future().wait()

        fit(network(), batches(0, 1), before_update=careless)

    with open_trace(ranks.run("careless", 2, body) / "rank0.trace") as trace:
        assert [note.component for note in trace.not_observed] == ["all_reduce"]
        assert not any(field == "output[0]" for _, _, field, _ in told(trace))
        assert trace.complete


def test_recording_changes_no_bit_of_what_is_exchanged(ranks: Ranks) -> None:
    def body() -> None:
        (ranks.folder / f"{name}{dist.get_rank()}").write_text(digest_of_state(with_each_kind()))

    name = "plain"
    ranks.plain(name, 2, body)
    name = "recorded"
    ranks.run(name, 2, body)

    for rank in range(2):
        texts = [(ranks.folder / f"{which}{rank}").read_text() for which in ("plain", "recorded")]
        assert texts[0] == texts[1]


def shared_by_hand(*, given: float = 1.0, averaged: bool = True) -> Callable[[], nn.Module]:
    """Gradients are added up by the program; one rank may give something else."""

    def body() -> nn.Module:
        model = network()

        def average(step: int) -> None:
            for parameter in model.parameters():
                assert parameter.grad is not None
                if step == 1 and dist.get_rank() == 1:
                    parameter.grad *= given
                if averaged:
                    dist.all_reduce(parameter.grad)

        return fit(model, batches(dist.get_rank(), dist.get_world_size()), before_update=average)

    return body


def test_a_fault_that_comes_by_a_collective_is_told_as_such(ranks: Ranks) -> None:
    reference = ranks.run("reference", 2, shared_by_hand())
    target = ranks.run("target", 2, shared_by_hand(given=1.5))

    result = ranks.diff(reference, target, "")

    assert result.first is not None
    assert (result.first.step, result.first.phase, result.first.rank) == (1, "gradient", 0)
    details = [each.detail for each in result.first.evidence if each.what == "collectives"]
    assert len(details) == 1
    assert details[0].startswith("all_reduce in gradient was given the same value and gave another")


def test_a_collective_that_is_left_out_is_told_beside_what_comes_of_it(ranks: Ranks) -> None:
    reference = ranks.run("reference", 2, shared_by_hand())
    target = ranks.run("target", 2, shared_by_hand(averaged=False))

    result = ranks.diff(reference, target, "")

    assert result.first is not None
    assert (result.first.step, result.first.phase) == (0, "gradient")
    assert result.first.component == "0.weight"
    details = [each.detail for each in result.first.evidence if each.what == "collectives"]
    assert len(details) == 1
    assert details[0].endswith("all_reduce in gradient in the reference, none in the target")
