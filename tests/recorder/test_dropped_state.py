"""State of an optimizer that is taken away between two updates is told where it happens."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from workshop import Workshop

import traceparity
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy


def recorded(workshop: Workshop, name: str, change: Any) -> Path:
    """Four updates; ``change`` is given the optimizer and its first state before the third."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    first = copy.deepcopy(optimizer.state_dict())
    trace = workshop.folder / f"{name}.trace"
    with traceparity.record(trace):
        for step in range(4):
            if step == 2:
                change(optimizer, first)
            optimizer.zero_grad()
            model(torch.randn(4, 4)).square().mean().backward()
            optimizer.step()
    return trace


def kept(optimizer: Any, first: Any) -> None:
    pass


def cleared(optimizer: Any, first: Any) -> None:
    optimizer.state.clear()


def loaded(optimizer: Any, first: Any) -> None:
    """As after a search for a rate that puts everything back."""
    optimizer.load_state_dict(first)


@pytest.mark.parametrize("change", [cleared, loaded])
def test_state_that_is_gone_is_a_difference_of_the_state(change: Any, workshop: Workshop) -> None:
    whole, twin, lost = (
        recorded(workshop, name, each)
        for name, each in (("whole", kept), ("twin", change), ("lost", change))
    )

    result = diff_runs(whole, [lost], Policy())
    assert result.first is not None
    place = (result.first.step, result.first.phase, result.first.component, result.first.field)
    assert place == (2, "state", "optimizer[0]", "dropped")
    assert diff_runs(twin, [lost], Policy()).outcome.name == "PASS"
