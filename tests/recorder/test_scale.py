"""Long runs, large steps and many models: what the recorder holds does not grow with them."""

import cProfile
import gc
import tracemalloc
from pathlib import Path

import pytest
import torch
from torch import nn
from workshop import Workshop

import traceparity
from traceparity.recorder import window
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


def test_a_step_of_very_many_calls_is_written_as_it_goes(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "SPILL", 1 << 18)
    model = Many(2_000, workshop.trace)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with traceparity.record(workshop.trace, capture="digest"):
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()

    assert model.written > 0
    with open_trace(workshop.trace) as trace:
        assert [step.number for step in trace.steps] == [0]
        assert sum(trace.steps[0].observations) > 2 * model.calls


def make(layers: int = 4) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def growth(workshop: Workshop, steps: int, *, anew: bool) -> float:
    """Bytes of Python objects that a round of a recording leaves behind, after the first ones."""
    held = []
    with traceparity.record(workshop.trace, capture="digest"):
        model, optimizer = make()
        tracemalloc.start()
        try:
            for _ in range(10):
                if anew:
                    model, optimizer = make()
                train(model, optimizer, steps)
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    return (held[-1] - held[3]) / 6


def test_a_step_leaves_nothing_but_its_entry_in_the_index(workshop: Workshop) -> None:
    assert growth(workshop, 5, anew=False) / 5 < 1000


def test_a_model_that_is_gone_leaves_its_names_alone(workshop: Workshop) -> None:
    """The names are those of the file; hooks, values and caches go with model and optimizer."""
    names_of_one = 30_000

    assert growth(workshop, 2, anew=True) < names_of_one


def calls_of_ours(workshop: Workshop, layers: int, *, every: int) -> int:
    """Python functions of the recorder that a step calls, be it recorded or left out."""
    model, optimizer = make(layers)
    profile = cProfile.Profile()
    name = workshop.folder / f"{layers}-{every}.trace"
    with traceparity.record(name, capture="sketch", every=every):
        train(model, optimizer, 3)
        profile.enable()
        train(model, optimizer, 1)
        profile.disable()
    return sum(
        entry.callcount
        for entry in profile.getstats()
        if not isinstance(entry.code, str) and "traceparity" in entry.code.co_filename
    )


def test_the_work_of_a_step_grows_as_its_model_does(workshop: Workshop) -> None:
    few, many = (calls_of_ours(workshop, layers, every=1) for layers in (10, 80))

    assert many < 8.5 * few


def test_a_step_that_is_left_out_costs_a_look_at_each_hook(workshop: Workshop) -> None:
    """Which tell that there is nothing to do: two of a module, and those of its gradients."""
    few, many = (calls_of_ours(workshop, layers, every=1000) for layers in (10, 80))
    hooks, parts_of_a_look = 2 + 3, 3

    assert (many - few) / 70 <= hooks * parts_of_a_look + 1
