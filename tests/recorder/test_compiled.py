"""Compiled models: seen at their boundary, compiled as without the recorder, and said to be dark.

The backend runs the graph that it is given: what is compiled and when is the same as with a real
one, and takes no compiler.
"""

import collections
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from workshop import Workshop

import traceparity
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Phase

COMPILED = "the inside of a torch.compile region"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(torch.relu(self.norm(self.first(x))))
        return result


class Broken(Net):
    """A graph ends in the midst of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norm(self.first(x)))
        torch._dynamo.graph_break()
        result: torch.Tensor = self.last(inner)
        return result


class Scripted(nn.Module):
    """Parts of it were traced and scripted, also while the recorder looks on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.traced: Any = torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4))
            self.scripted: Any = torch.jit.script(nn.Linear(4, 4))
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.traced(x) + self.scripted(x))
        return result


class Outer(nn.Module):
    """Its inner part is compiled, it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Net()
        self.inner.compile(backend="eager")
        self.head = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.inner(x))
        return result


def wrapped(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


def in_place(model: nn.Module) -> Any:
    model.compile(backend="eager")
    return model


def in_whole(model: nn.Module) -> Any:
    model.compile(backend="eager", fullgraph=True)
    return model


def within(model: nn.Module) -> Any:
    """A compiled function around a module that was compiled before."""
    model.compile(backend="eager")
    return torch.compile(lambda x: model(x) * 1.0, backend="eager")


def train(model: nn.Module, call: Any, steps: int = 4) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(2 * steps, 4, generator=generator)
    for batch in torch.utils.data.DataLoader(rows, 2, generator=torch.Generator()):
        optimizer.zero_grad()
        call(batch).square().mean().backward()
        optimizer.step()
        scheduler.step()
    return [each.detach().clone() for each in model.state_dict().values()]


def counted() -> dict[str, dict[str, int]]:
    """What dynamo has counted: graphs and calls in them, breaks, recompilations."""
    counters = torch._dynamo.utils.counters
    parts = ("stats", "graph_break", "recompiles", "unimplemented")
    return {part: dict(counters[part]) for part in parts}


def fresh() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def sites(trace: Path) -> dict[Phase, collections.Counter[str]]:
    found: dict[Phase, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with open_trace(trace) as opened:
        assert opened.complete
        for step in opened.steps:
            for number in opened.columns(step.number).site:
                site = opened.sites[int(number)].site
                found[site.phase][f"{site.component}:{site.field}"] += 1
    return found


def notes(trace: Path) -> list[tuple[str, str]]:
    with open_trace(trace) as opened:
        return [(note.component, note.reason) for note in opened.not_observed]


@pytest.mark.parametrize(
    ("kind", "compiled"),
    [
        (Net, wrapped), (Net, in_place), (Net, in_whole), (Net, within),
        (Outer, lambda model: model), (Broken, wrapped), (Broken, in_place), (Scripted, wrapped),
    ],
)  # fmt: skip
def test_what_is_compiled_does_not_change(kind: Any, compiled: Any, workshop: Workshop) -> None:
    """No graph, break or recompilation more or less, no other bit, no warning of its own."""
    fresh()
    with warnings.catch_warnings(record=True) as usual:
        warnings.simplefilter("always")
        model = kind()
        expected, without = train(model, compiled(model)), counted()

    fresh()
    with traceparity.record(workshop.trace), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = kind()
        got = train(model, compiled(model))

    assert counted() == without
    assert bool(without["stats"].get("unique_graphs")) is (kind is not Scripted)
    assert {str(each.message) for each in warned} <= {str(each.message) for each in usual}
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(got, expected, strict=True))
    assert workshop.told().complete
    assert workshop.told().steps == [0, 1, 2, 3]


@pytest.mark.parametrize("compiled", [wrapped, in_place])
def test_a_compiled_model_is_seen_from_outside(compiled: Any, workshop: Workshop) -> None:
    fresh()
    with traceparity.record(workshop.trace):
        model = Net()
        train(model, compiled(model))

    seen = sites(workshop.trace)
    forward = seen[Phase.FORWARD]
    assert (forward[":input[0]"], forward[":output[0]"]) == (4, 4)
    assert not any(
        name.startswith(("first", "norm", "last")) for name in forward if ":v" not in name
    )
    assert seen[Phase.LOSS]["loss:value"] == 4
    assert seen[Phase.BACKWARD][":grad_output[0]"] == 4
    assert seen[Phase.BACKWARD]["first.weight:grad"] == 4
    assert seen[Phase.GRADIENT]["last.bias:grad"] == 4
    assert seen[Phase.OPTIMIZER]["first.weight:value"] == 4
    assert seen[Phase.SCHEDULER]["optimizer[0] group[0]:lr"] == 4
    assert seen[Phase.DATA]["loader[0]:sample_ids"] == 4
    assert notes(workshop.trace) == [("", COMPILED)]


def test_a_compiled_part_of_a_model_is_dark_alone(workshop: Workshop) -> None:
    fresh()
    with traceparity.record(workshop.trace):
        model = Outer()
        train(model, model)

    forward = sites(workshop.trace)[Phase.FORWARD]
    assert forward["inner:output[0]"] == forward["head:output[0]"] == forward[":output[0]"] == 4
    assert not forward["inner.first:output[0]"]
    assert notes(workshop.trace) == [("inner", COMPILED)]


def test_without_compilation_the_inside_is_seen(workshop: Workshop) -> None:
    fresh()
    with traceparity.record(workshop.trace), torch.compiler.set_stance("force_eager"):
        model = Net()
        train(model, in_place(model))

    forward = sites(workshop.trace)[Phase.FORWARD]
    assert forward["first:output[0]"] == forward[":output[0]"] == forward[":input[0]"] == 4
    assert notes(workshop.trace) == []


def test_a_compiled_function_hides_the_calls_and_no_names(workshop: Workshop) -> None:
    fresh()
    with traceparity.record(workshop.trace):
        model = Net()
        train(model, torch.compile(lambda x: model(x), backend="eager"))

    seen = sites(workshop.trace)
    assert seen[Phase.GRADIENT]["first.weight:grad"] == 4
    assert seen[Phase.OPTIMIZER]["first.weight:value"] == 4
    ((component, reason),) = notes(workshop.trace)
    assert component == ""
    assert "compiled function" in reason


def test_a_script_module_is_seen_from_outside(workshop: Workshop) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model: Any = torch.jit.script(Net())
    with traceparity.record(workshop.trace):
        train(model, model)

    seen = sites(workshop.trace)
    assert seen[Phase.FORWARD][":output[0]"] == 4
    assert seen[Phase.OPTIMIZER]["first.weight:value"] == 4
    assert ("", "the inside of a TorchScript module") in notes(workshop.trace)


PROGRAM = """
    import sys
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1))
    compiled = torch.compile(model, backend="aot_eager_decomp_partition")
    call = compiled if "compiled" in sys.argv else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02 if "fault" in sys.argv else 0.01)
    rows = torch.randn(12, 4)
    for batch in torch.utils.data.DataLoader(rows, 4, shuffle=True):
        optimizer.zero_grad()
        call(batch).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_an_eager_run_and_a_compiled_one_are_close(workshop: Workshop, commands: Any) -> None:
    program = workshop.write("program.py", PROGRAM)
    eager = commands.record("eager", program)
    compiled = commands.record("compiled", program, "compiled")
    fault = commands.record("fault", program, "compiled", "fault")

    close = commands.diff("--policy", "close", eager, compiled)
    assert close["outcome"] == "PASS", (close["reason"], close["first_divergence"])
    assert {note["reason"] for note in close["not_observed"]} == {COMPILED}
    other = commands.diff("--policy", "close", eager, fault)["first_divergence"]
    assert (other["phase"], other["component"], other["field"]) == (
        "state", "optimizer[0] group[0]", "lr",
    )  # fmt: skip


@pytest.mark.slow
def test_recorded_eagerly_a_compiled_program_shows_its_inside(
    workshop: Workshop, commands: Any
) -> None:
    program = workshop.write("program.py", PROGRAM)
    eager = commands.record("eager", program)
    trace = commands.folder / "seen.trace"
    done = commands.run("tp-record", "--eager", "-o", trace, "--", program, "compiled")
    assert done.returncode == 0, done.stderr

    assert notes(trace) == []
    result = commands.diff(eager, trace)
    assert result["outcome"] == "PASS", (result["reason"], result["first_divergence"])
