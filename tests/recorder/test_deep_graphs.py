"""A pass of very many calls: its graph is freed as without us, and its trace stays readable."""

import os
import resource
from pathlib import Path

import pytest
import torch
from torch import nn
from workshop import Workshop

import traceparity
from traceparity.recorder import graph_room
from traceparity.tracefmt.reader import open_trace

SMALL_STACK = 1 << 18
ENOUGH = 1200
"""Calls whose graph overflows that stack if all outputs have hooks."""


class Chain(nn.Module):
    def __init__(self, calls: int) -> None:
        super().__init__()
        self.cell = nn.Linear(2, 2)
        self.calls = calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.calls):
            x = self.cell(x)
        return x


def train(trace: Path, calls: int, passes: int) -> None:
    model = Chain(calls)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with traceparity.record(trace, capture="digest"):
        for _ in range(passes):
            model(torch.ones(1, 2)).sum().backward()
        optimizer.step()


def in_a_child_with_stack(bytes_of_stack: int, trace: Path, calls: int) -> int:
    child = os.fork()
    if not child:
        _, most = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (bytes_of_stack, most))
        train(trace, calls, passes=1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_freeing_a_deep_graph_does_not_overflow_the_stack(workshop: Workshop) -> None:
    """torch frees nodes that Python has seen one inside the other."""
    assert in_a_child_with_stack(SMALL_STACK, workshop.trace, ENOUGH) == 0


@pytest.mark.parametrize("passes", [1, 2])
def test_each_pass_has_room_for_some_gradients_and_says_what_it_leaves_out(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    monkeypatch.setattr(graph_room, "most_watched", lambda: 4)
    train(workshop.trace, 10, passes)

    with open_trace(workshop.trace) as trace:
        columns = trace.columns(0)
        fields = [trace.sites[site].site.field for site in columns.site.tolist()]
        told = [note for note in trace.not_observed if note.component.startswith("cell")]
    assert fields.count("grad_output[0]") == 4 * passes
    assert fields.count("output[0]") == 11 * passes
    assert "further gradients" in told[0].reason
