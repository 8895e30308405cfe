"""`traceparity.record` as a context manager and as a decorator, in this very process."""

import gc
import itertools
import pickle
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from workshop import Workshop

import traceparity
from traceparity.recorder.observe import Observer
from traceparity.recorder.settings import SettingsError
from traceparity.tracefmt.errors import TraceExistsError
from traceparity.tracefmt.reader import open_trace


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(torch.relu(self.norm(self.first(x))))
        return result


def train(steps: int) -> nn.Module:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = torch.utils.data.DataLoader(torch.ones(2 * steps, 4), 2)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    return model


def test_what_is_trained_inside_is_recorded(workshop: Workshop) -> None:
    train(1)
    with traceparity.record(workshop.trace):
        train(2)
    train(1)

    told = workshop.told()
    assert (told.steps, told.complete) == ([0, 1], True)


class Parts:
    """All that a training has, made at once."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu")
        rows = torch.randn(8, 4)
        self.loader = torch.utils.data.DataLoader(rows, 4, shuffle=True)
        self.others = torch.utils.data.DataLoader(rows * 2, 8)

    def train(self, spoilt: int = 9) -> None:
        for epoch in range(2):
            for batch in self.loader:
                self.optimizer.zero_grad()
                self.scaler.scale(self.model(batch).square().mean()).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
            with torch.no_grad():
                for batch in self.others:
                    self.model(batch)
            self.scheduler.step()
            if epoch == spoilt:
                self.scheduler.last_epoch += 1


def test_what_is_older_than_a_recording_is_recorded_as_what_is_made_in_it(
    workshop: Workshop, commands: Any
) -> None:
    """What an earlier training has left is no part of it."""
    traces = [workshop.folder / f"{name}.trace" for name in ("inside", "before", "spoilt")]
    left = Parts()
    left.train()
    with traceparity.record(traces[0]):
        Parts().train()
    for trace, spoilt in ((traces[1], 9), (traces[2], 0)):
        parts = Parts()
        with traceparity.record(trace):
            parts.train(spoilt)

    same = commands.diff(*traces[:2])
    assert same["outcome"] == "PASS", (same["reason"], same["first_divergence"])
    found = commands.diff(traces[1], traces[2])["first_divergence"]
    assert (found["step"], found["component"]) == (2, "scheduler.last_epoch")


def test_a_class_of_torch_that_the_program_has_replaced_stops_nothing(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda *args: scaler(*args, init_scale=4.0))
    with traceparity.record(workshop.trace):
        Parts().train()

    with open_trace(workshop.trace) as trace:
        assert trace.complete
        assert "scaler.scale" in {entry.site.component for entry in trace.sites}


def test_a_decorated_function_is_recorded_at_each_call(workshop: Workshop) -> None:
    @traceparity.record(workshop.trace, overwrite=True, capture="digest")
    def program(steps: int) -> str:
        train(steps)
        return "trained"

    assert program(1) == "trained"
    first = workshop.told()
    assert program(3) == "trained"

    assert first.steps == [0]
    assert workshop.told().steps == [0, 1, 2]


def test_an_exception_goes_through_and_the_trace_is_whole(workshop: Workshop) -> None:
    error = ValueError("of the program")

    def program() -> None:
        with traceparity.record(workshop.trace):
            train(2)
            raise error

    with pytest.raises(ValueError, match="of the program") as caught:
        program()

    assert caught.value is error
    assert [Path(entry.path).name for entry in caught.traceback] == 2 * ["test_api.py"]
    assert workshop.told().complete


def test_recordings_follow_each_other_but_do_not_nest(workshop: Workshop) -> None:
    inner = workshop.folder / "inner.trace"
    with traceparity.record(workshop.trace):
        train(1)
        with pytest.raises(RuntimeError, match="already running"):
            traceparity.record(workshop.trace, overwrite=True).__enter__()
        train(1)
    with traceparity.record(inner):
        train(1)

    assert workshop.told().steps == [0, 1]
    assert workshop.told(inner).steps == [0]


def test_a_place_or_setting_that_is_wrong_is_told_at_once(workshop: Workshop) -> None:
    workshop.write("notes.txt", "text\n")

    with pytest.raises(TraceExistsError):
        traceparity.record(workshop.folder / "notes.txt", overwrite=True).__enter__()
    with pytest.raises(SettingsError, match="unknown key 'colour'"):
        traceparity.record(workshop.trace, colour="red").__enter__()
    with pytest.raises(OSError, match=r"notes\.txt"):
        traceparity.record(workshop.folder / "notes.txt" / "a.trace").__enter__()

    with traceparity.record(workshop.folder / "new" / "folder" / "a.trace"):
        train(1)
    assert workshop.told(workshop.folder / "new" / "folder" / "a.trace").steps == [0]


@pytest.mark.parametrize("healthy", [0, 7, 30])
def test_a_fault_of_ours_is_one_line_and_never_the_programs(
    healthy: int, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The trace says that something is missing from it."""
    summarise, calls = Observer._summarise, itertools.count()

    def faulty(*args: Any) -> Any:
        if next(calls) >= healthy:
            raise KeyError("a fault of ours")
        return summarise(*args)

    torch.manual_seed(0)
    plain = train(3)
    monkeypatch.setattr(Observer, "_summarise", faulty)
    torch.manual_seed(0)
    with traceparity.record(workshop.trace):
        recorded = train(3)

    assert all(map(torch.equal, plain.parameters(), recorded.parameters()))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("traceparity: an observation was lost (KeyError: 'a fault of ours', at")
    told = workshop.told()
    assert not told.complete
    assert "were lost to errors" in told.reason


def test_a_block_without_training_leaves_no_file(workshop: Workshop) -> None:
    with traceparity.record(workshop.trace, capture="values"), torch.no_grad():
        nn.Linear(64, 64)(torch.ones(64, 64))

    assert not workshop.trace.exists()


def global_hooks() -> dict[str, Any]:
    """All that torch knows of hooks on everything."""
    known = {}
    for module in (torch_module, torch_optimizer):
        for name, value in vars(module).items():
            if name.startswith("_global"):
                known[name] = dict(value) if isinstance(value, dict) else value
    # Torch forgets to remove its note that a hook wants keyword arguments.
    known.pop("_global_forward_hooks_with_kwargs")
    return known


def functions_of_torch() -> dict[tuple[str, ...], int]:
    """The identity of every function, class and method that torch has loaded."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name != "torch" and not name.startswith("torch."):
            continue
        for key, value in list(vars(module).items()):
            if callable(value):
                found[name, key] = id(value)
            if issubclass(type(value), type):
                found |= {
                    (name, key, attribute): id(inner)
                    for attribute, inner in list(vars(value).items())
                    if callable(inner)
                }
    return found


@pytest.mark.parametrize("fails", [False, True])
def test_torch_is_as_before_when_a_recording_ends(fails: bool, workshop: Workshop) -> None:
    """Also after one that had to be given up."""
    train(1)
    before = global_hooks(), functions_of_torch()

    with traceparity.record(workshop.trace, capture="values") as session:
        during = global_hooks(), functions_of_torch()
        model = train(1)
        if fails:
            session._give_up(OSError(28, "No space left on device"))
        train(1)

    after = global_hooks(), functions_of_torch()
    assert during[0] != before[0]
    assert during[1] != before[1]
    assert after[0] == before[0]
    assert {key: after[1].get(key) for key in before[1]} == before[1]
    for parameter in model.parameters():
        assert not parameter._post_accumulate_grad_hooks
        assert not parameter._backward_hooks
    assert workshop.told().complete is not fails


def test_what_the_program_wraps_meanwhile_stays_wrapped(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "save", torch.save)
    calls = []
    with traceparity.record(workshop.trace):
        inner = torch.save

        def save(*args: Any, **kwargs: Any) -> None:
            calls.append(args[1])
            inner(*args, **kwargs)

        torch.save = save  # type: ignore[assignment]

    torch.save(1, workshop.folder / "one.pt")

    assert torch.save is save
    assert calls == [workshop.folder / "one.pt"]


@pytest.mark.parametrize(
    "name", ["load", "save", "autograd.backward", "nn.utils.clip_grad_norm_", "optim.SGD"]
)
def test_torchs_functions_can_be_pickled_while_recording(name: str, workshop: Workshop) -> None:
    """As the loader of a dataset is, when it goes to spawned workers."""

    def function() -> Callable[..., Any]:
        found: Any = torch
        for part in name.split("."):
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]

    with traceparity.record(workshop.trace):
        pickled = pickle.dumps(function())
        assert pickle.loads(pickled) is function()

    assert pickle.loads(pickled) is function()


def test_models_that_come_and_go_are_let_go(workshop: Workshop) -> None:
    """A search over 200 models: none is kept alive, and hooks on everything stay as many."""

    def one() -> list[weakref.ref[Any]]:
        model = train(1)
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, 4))
        return [weakref.ref(model), *map(weakref.ref, model.parameters())]

    with traceparity.record(workshop.trace, capture="digest") as session:
        refs = one()
        hooks = global_hooks()
        objects = []
        for number in range(200):
            refs += one()
            if number % 50 == 49:
                gc.collect()
                objects.append(len(gc.get_objects()))
        assert global_hooks() == hooks
        assert not session._gradients._watched

    assert not [ref for ref in refs if ref() is not None]
    growth = [after - before for before, after in itertools.pairwise(objects)]
    # Each model adds names to the tables of the trace, and nothing that grows with its size.
    assert max(growth) < 50 * 400
    assert len(workshop.told().steps) == 201


FORKING = """
    import os, traceparity
    from training import train

    with traceparity.record("run.trace"):
        pid = os.fork()
        if pid == 0:
            # The first to train, so it would be the one to create the file.
            train(1)
            os._exit(os.path.exists("run.trace"))
        print(os.waitpid(pid, 0)[1])
        train(2)
"""


def test_a_forked_child_leaves_the_recording_to_its_parent(workshop: Workshop) -> None:
    done = workshop.run("python", workshop.write("forking.py", FORKING))

    assert (done.status, done.stdout, done.stderr) == (0, "0\n", "")
    told = workshop.told()
    assert (told.steps, told.complete) == ([0, 1], True)


def test_a_removed_working_folder_costs_nothing(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(1)  # torch loads the rest of itself, for which it needs a folder
    place = workshop.folder / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    with traceparity.record(workshop.trace):
        place.rmdir()
        train(1)

    assert workshop.told().complete


def test_a_relative_path_is_where_the_recording_began(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workshop.folder)
    with traceparity.record("here.trace"):
        monkeypatch.chdir(Path("/"))
        train(1)

    assert workshop.told(workshop.folder / "here.trace").steps == [0]


class Nested(torch.optim.SGD):
    """Keeps a state with dictionaries and lists in it."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                again = self.state[parameter]["outer"] = {"inner": parameter.detach().clone()}
                again["list"] = [1, (2.5, parameter.detach() * 2)]


def test_state_of_an_optimizer_is_recorded_however_it_is_nested(tmp_path: Path) -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = Nested(model.parameters(), lr=0.1)

    with traceparity.record(tmp_path / "a.trace"):
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()

    with open_trace(tmp_path / "a.trace") as trace:
        fields = {e.site.field for e in trace.sites if e.site.component == "optimizer[0]"}
    keys = ("inner", "list.0", "list.1.0", "list.1.1")
    assert {f"outer.{key}[weight]" for key in keys} <= fields


def test_of_the_environment_only_named_variables_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "hunter2")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    with traceparity.record(tmp_path / "a.trace"):
        train(1)

    with open_trace(tmp_path / "a.trace") as trace:
        header = repr(trace.header)
    assert ":4096:8" in header
    assert "hunter2" not in header
