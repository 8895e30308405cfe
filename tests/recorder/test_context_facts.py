"""Facts that explain: what chose samples, a mode within a step, writes that no hook saw."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, TensorDataset

from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Flag

sys.path.append(str(Path(__file__).parents[1] / "cases" / "invariants"))


class Backwards(Sampler[int]):
    def __iter__(self) -> Any:
        return iter(range(7, -1, -1))

    def __len__(self) -> int:
        return 8


class Halved(BatchSampler):
    """A batch sampler around another one, with no sampler of its own."""

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Any:
        yield from list(self.batch_sampler)[::2]

    def __len__(self) -> int:
        return len(self.batch_sampler) // 2


class Alone(Halved):
    """One that shows nothing of what it draws from."""

    def __init__(self) -> None:
        pass

    def __iter__(self) -> Any:
        yield [1, 2]


def train(model: nn.Module, optimizer: Any, batches: Any) -> None:
    for (inputs,) in batches:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()


def loaders() -> None:
    torch.manual_seed(0)
    data, model = TensorDataset(torch.randn(8, 3)), nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, DataLoader(data, 4, shuffle=True))
    train(model, optimizer, DataLoader(data, 4))
    train(model, optimizer, DataLoader(data, 4, sampler=Backwards()))
    around = Halved(BatchSampler(RandomSampler(data), 4, drop_last=True))
    train(model, optimizer, DataLoader(data, batch_sampler=around))
    train(model, optimizer, DataLoader(data, batch_sampler=Alone()))


def modes() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model.eval()
        attack = torch.randn(2, 3, requires_grad=True)
        model(attack).sum().backward()
        model.train()
        optimizer.zero_grad()
        model(attack.detach()).square().mean().backward()
        optimizer.step()


def unseen() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 3)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)


def written() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    nn.init.zeros_(model.bias)
    nn.init.zeros_(model.bias)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), [(torch.randn(2, 3),)])


def shaped() -> None:
    """As a framework does that learns the shapes of a model before it trains it."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    shadow = {name: each.to("meta") for name, each in model.state_dict().items()}
    with torch.no_grad():
        torch.func.functional_call(model, shadow, torch.empty(2, 3, device="meta"))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), [(torch.randn(2, 3),)])


@pytest.fixture
def rows(tmp_path: Path) -> Any:
    """``(step, component, field, value)`` of the plain context rows of a program."""
    import recording

    def rows(program: Any, *fields: str) -> list[tuple[int, str, str, Any]]:
        recording.record(program, tmp_path / "run.trace")
        found = []
        with open_trace(tmp_path / "run.trace") as trace:
            for step in trace.steps:
                columns = trace.columns(step.number)
                for row, number in enumerate(columns.site.tolist()):
                    site = trace.sites[number].site
                    if site.field in fields and columns.flags[row] & Flag.CONTEXT:
                        value = trace.scalar(columns, row)
                        found.append((step.number, site.component, site.field, value))
        return found

    return rows


def test_the_first_batch_of_a_pass_tells_what_chose_its_samples(rows):
    shuffled = {"class": "RandomSampler", "shuffle": True, "replacement": False}
    in_order = {"class": "SequentialSampler", "shuffle": False, "replacement": None}
    own = {"class": "Backwards", "shuffle": None, "replacement": None}
    alone = {"class": "Alone", "shuffle": None, "replacement": None}

    assert rows(loaders, "sampler") == [
        (0, "loader[0]", "sampler", shuffled),
        (2, "loader[1]", "sampler", in_order),
        (4, "loader[2]", "sampler", own),
        (6, "loader[3]", "sampler", shuffled),
        (7, "loader[4]", "sampler", alone),
    ]


def test_a_root_called_in_another_mode_than_the_step_began_with_tells(rows):
    """And so does what is in it."""
    assert rows(modes, "training") == [
        (step, module, "training", True) for step in (0, 1) for module in ("", "0", "1")
    ]


def test_updates_that_run_no_hooks_leave_a_trace(rows):
    """The second and the third time that gradients are cleared, parameters are others."""
    told = rows(unseen, "unseen_update")

    assert told == [(0, "optimizer[0]", "unseen_update", True)] * len(told)
    assert told


def test_parameters_tell_how_often_they_were_written_before(rows):
    assert rows(written, "writes") == [(0, "weight", "writes", 1), (0, "bias", "writes", 3)]


def test_where_shapes_alone_were_computed_nothing_is_missed(rows, tmp_path):
    rows(shaped)

    with open_trace(tmp_path / "run.trace") as trace:
        assert trace.complete
        assert not trace.not_observed
