"""Pipelines of torch: what a stage computes is recorded, its trial on unwritten memory is not."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, digest_of_state
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from traceparity.tracefmt.reader import open_trace

pytestmark = pytest.mark.slow


def pipeline(rate: float = 1e-2) -> nn.Module:
    """Two stages with two micro-batches a step; the rate is that of the second stage."""
    torch.manual_seed(0)
    rank = dist.get_rank()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    stage = PipelineStage(model, rank, dist.get_world_size(), torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.MSELoss())
    optimizer = torch.optim.Adam(model.parameters(), lr=rate if rank else 1e-2)
    for _ in range(3):
        inputs, targets = torch.randn(4, 4), torch.randn(4, 4)
        optimizer.zero_grad()
        if rank:
            schedule.step(target=targets)
        else:
            schedule.step(inputs)
        optimizer.step()
    return model


def test_a_pipeline_is_equal_to_its_repeat_and_as_without_the_recorder(ranks: Ranks) -> None:
    def told(name: str, rate: float = 1e-2) -> Callable[[], None]:
        def body() -> None:
            state = digest_of_state(pipeline(rate))
            (ranks.folder / f"{name}{dist.get_rank()}").write_text(state)

        return body

    ranks.plain("plain", 2, told("plain"))
    traces = [ranks.run(name, 2, told(name)) for name in ("first", "again")]
    fault = ranks.run("fault", 2, told("fault", 2e-2))

    for rank in range(2):
        texts = [(ranks.folder / f"{name}{rank}").read_text() for name in ("plain", "first")]
        assert texts[0] == texts[1]
        with open_trace(traces[0] / f"rank{rank}.trace") as trace:
            assert trace.complete, trace.incomplete_reason
            assert len(trace.steps) == 3
    same = ranks.diff(*traces, "")
    assert same.outcome.name == "PASS", same.reason
    found = ranks.diff(traces[0], fault, "").first
    assert found is not None
    assert (found.rank, found.step, found.component, found.field) == (
        1, 0, "optimizer[0] group[0]", "lr",
    )  # fmt: skip
