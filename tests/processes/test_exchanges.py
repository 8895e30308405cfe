"""Point-to-point calls and functional collectives: seen as the program's own, left as they are."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from parallel_trainings import batches, fit, network
from ranks import Ranks, digest_of_state
from test_collectives import rows_of
from torch import nn

from traceparity.tracefmt.reader import open_trace

NAMES = {
    "send", "recv", "send_object_list", "recv_object_list", "all_reduce", "all_gather_single",
    "all_reduce_coalesced", "all_to_all_single", "broadcast", "reduce_scatter_single",
}  # fmt: skip


def each_kind(step: int) -> None:
    """Every way to send to the other process and to receive from it, once."""
    if step:
        return
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    mine, theirs = torch.tensor([1.0 + rank]), torch.zeros(1)
    if rank == 0:
        dist.send(mine, other)
        dist.recv(theirs)
    else:
        dist.recv(theirs, other)
        dist.send(mine + 4, other)
    for work in (dist.isend(mine, other), dist.irecv(theirs, other)):
        assert work is not None
        work.wait()
    both = [dist.P2POp(dist.irecv, theirs, other), dist.P2POp(dist.isend, mine + 6, other)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    if rank == 0:
        dist.send_object_list([rank], other)
    else:
        dist.recv_object_list([None], other)
    assert theirs.item() == 7.0 + other


def functional(step: int) -> None:
    """Functional collectives, which may be waited for by whoever uses their result."""
    if step:
        return
    collectives: Any = importlib.import_module("torch.distributed._functional_collectives")
    rank, world = dist.get_rank(), dist.group.WORLD
    mine = torch.tensor([1.0 + rank])
    assert (collectives.all_reduce(mine, "sum", world) + 1).item() == 4.0
    assert collectives.all_gather_single(mine, 0, world).view(2, 1).tolist() == [[1.0], [2.0]]
    collectives.wait_tensor(collectives.broadcast(mine, 1, world))
    collectives.reduce_scatter_single(torch.arange(2.0), "sum", 0, world).wait()
    pair = collectives.all_reduce_coalesced([mine, mine * 10], "max", world)
    assert [each.item() for each in pair] == [2.0, 20.0]
    source = torch.arange(2.0, requires_grad=True)
    collectives.all_to_all_single_autograd(source * 2, [1, 1], [1, 1], world).sum().backward()
    collectives.all_reduce(mine, "min", world)


def body(exchange: Any) -> nn.Module:
    return fit(network(), batches(dist.get_rank(), dist.get_world_size()), before_update=exchange)


def each_way(step: int) -> None:
    each_kind(step)
    functional(step)


@pytest.fixture(scope="module")
def folder(shared_ranks: Ranks) -> Path:
    """Both, with the state that each rank ends with, and the state that it ends with unrecorded."""

    def ends(name: str) -> None:
        state = digest_of_state(body(each_way))
        (shared_ranks.folder / f"{name}{dist.get_rank()}").write_text(state)

    shared_ranks.plain("plain", 2, lambda: ends("plain"))
    return shared_ranks.run("exchanged", 2, lambda: ends("recorded"))


def test_point_to_point_calls_tell_what_is_sent_and_received(folder: Path) -> None:
    both = [0, 1]
    with open_trace(folder / "rank0.trace") as trace:
        told = rows_of(trace, NAMES)
    assert told[:11] == [
        ("gradient", "send", "group", {"ranks": both, "to": 1}),
        ("gradient", "send", "input[0]", [1.0]),
        ("gradient", "recv", "group", {"ranks": both, "from": None}),
        ("gradient", "recv", "output[0]", [6.0]),
        ("gradient", "send", "input[0]", [1.0]),
        ("gradient", "recv", "group", {"ranks": both, "from": 1}),
        ("gradient", "recv", "output[0]", [2.0]),
        ("gradient", "send", "input[0]", [7.0]),
        ("gradient", "recv", "output[0]", [8.0]),
        ("gradient", "send_object_list", "called", True),
        ("gradient", "all_reduce", "group", {"op": "sum", "ranks": both}),
    ]


def test_functional_collectives_tell_their_results_once_they_are_waited_for(folder: Path) -> None:
    both = [0, 1]
    with open_trace(folder / "rank1.trace") as trace:
        told = [row[1:] for row in rows_of(trace, NAMES)]
        notes = [(note.component, note.reason) for note in trace.not_observed]
        assert trace.complete, trace.incomplete_reason
    start = told.index(("all_reduce", "group", {"op": "sum", "ranks": both}))
    assert told[start:] == [
        ("all_reduce", "group", {"op": "sum", "ranks": both}),
        ("all_reduce", "input[0]", [2.0]),
        ("all_reduce", "output[0]", [3.0]),
        ("all_gather_single", "group", {"ranks": both}),
        ("all_gather_single", "input[0]", [2.0]),
        ("all_gather_single", "output[0]", [1.0, 2.0]),
        ("broadcast", "group", {"ranks": both, "root": 1}),
        ("broadcast", "input[0]", [2.0]),
        ("broadcast", "output[0]", [2.0]),
        ("reduce_scatter_single", "group", {"op": "sum", "ranks": both}),
        ("reduce_scatter_single", "input[0]", [0.0, 1.0]),
        ("reduce_scatter_single", "output[0]", [2.0]),
        ("all_reduce_coalesced", "group", {"op": "max", "ranks": both}),
        ("all_reduce_coalesced", "input[0]", [2.0]),
        ("all_reduce_coalesced", "input[1]", [20.0]),
        ("all_reduce_coalesced", "output[0]", [2.0]),
        ("all_reduce_coalesced", "output[1]", [20.0]),
        ("all_to_all_single", "group", {"ranks": both}),
        ("all_to_all_single", "input[0]", [0.0, 2.0]),
        ("all_to_all_single", "output[0]", [2.0, 2.0]),
        ("all_reduce", "group", {"op": "min", "ranks": both}),
        ("all_reduce", "input[0]", [2.0]),
    ]
    assert notes == [("all_reduce", "a result that nobody waited for")]


def test_exchanges_are_the_same_with_and_without_the_recorder(folder: Path) -> None:
    for rank in range(2):
        plain, recorded = (
            (folder.parent / f"{name}{rank}").read_text() for name in ("plain", "recorded")
        )
        assert plain == recorded
