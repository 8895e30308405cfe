"""Long runs, large steps and many models: what the recorder holds does not grow with them."""

import gc
import tracemalloc
from pathlib import Path

import pytest
import torch
from torch import nn
from workshop import Workshop

import traceparity
from traceparity.recorder.seen import Seen
from traceparity.tracefmt.reader import open_trace


def test_tensors_that_died_are_forgotten_on_the_way() -> None:
    """A step may call a million modules."""
    seen: Seen[int] = Seen()
    live = [torch.zeros(1) for _ in range(3)]
    for number, tensor in enumerate(live):
        seen.put(tensor, tensor._version, number)
    kept: list[torch.Tensor] = []
    largest = 0
    for number in range(60_000):
        kept.append(torch.empty(1))
        seen.put(kept[-1], 0, number)
        if len(kept) == 1000:
            kept.clear()
        largest = max(largest, len(seen))

    assert largest <= 1 << 14
    assert [seen.get(tensor, tensor._version) for tensor in live] == [0, 1, 2]


def test_a_fact_about_a_tensor_is_none_about_its_next_version() -> None:
    seen: Seen[str] = Seen()
    tensor = torch.zeros(2)
    seen.put(tensor, tensor._version, "zeros")
    tensor += 1

    assert seen.get(tensor, tensor._version) is None


class Many(nn.Module):
    """Calls a small module very often, and looks at the trace when it is nearly done."""

    def __init__(self, calls: int, trace: Path) -> None:
        super().__init__()
        self.small = nn.Identity()
        self.last = nn.Linear(1, 1)
        self.calls = calls
        self.trace = trace
        self.written = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.calls):
            x = self.small(x)
        self.written = self.trace.stat().st_size if self.trace.exists() else 0
        result: torch.Tensor = self.last(x)
        return result


@pytest.mark.slow
def test_a_step_of_very_many_calls_is_written_as_it_goes(workshop: Workshop) -> None:
    model = Many(120_000, workshop.trace)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with traceparity.record(workshop.trace, capture="digest"):
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()

    assert model.written > 0
    with open_trace(workshop.trace) as trace:
        assert [step.number for step in trace.steps] == [0]
        assert sum(trace.steps[0].observations) > 2 * model.calls


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def growth(workshop: Workshop, steps: int, *, anew: bool) -> float:
    """Bytes of Python objects that a round of a recording leaves behind, after the first ones."""
    held = []
    with traceparity.record(workshop.trace, capture="digest"):
        model, optimizer = make()
        tracemalloc.start()
        try:
            for _ in range(16):
                if anew:
                    model, optimizer = make()
                for _ in range(steps):
                    optimizer.zero_grad()
                    model(torch.ones(2, 4)).sum().backward()
                    optimizer.step()
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    return (held[-1] - held[7]) / 8


def test_a_step_leaves_nothing_but_its_entry_in_the_index(workshop: Workshop) -> None:
    assert growth(workshop, 10, anew=False) / 10 < 1000


def test_a_model_that_is_gone_leaves_its_names_alone(workshop: Workshop) -> None:
    """The names are those of the file; hooks, values and caches go with the model."""
    assert growth(workshop, 2, anew=True) < 60_000
