"""The operators inside a chosen module are recorded, and the run stays what it was."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

import traceparity as tp
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy
from traceparity.recorder import operator_watch
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Phase


class Scaled(nn.Module):
    """Two products, each on a line of its own."""

    def __init__(self, factor=2.0, error=False):
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 0.5))
        self.factor = factor
        self.error = error

    def forward(self, x):
        x = x * self.weight
        if self.error:
            raise ValueError("of the program")
        x = x.t().t()
        return x.mul(self.factor).add_(1)


class Mixed(nn.Module):
    """Operators with fused, random, in-place and many-output kernels."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))

    def forward(self, x):
        x = self.norm(self.convolution(x))
        x, _ = self.recurrent(x)
        x, _ = self.attention(x, x, x, need_weights=False)
        return self.head(nn.functional.dropout(self.encoder(x), 0.2, self.training))


def train(model, size, steps=3):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(size)).square().mean().backward()
        optimizer.step()
    return {**model.state_dict(), "random": torch.get_rng_state()}


def trained(make, size, path=None, **settings):
    torch.manual_seed(0)
    model = make()
    if path is None:
        return train(model, size)
    with tp.record(path, overwrite=True, **settings):
        return train(model, size)


@pytest.mark.parametrize(
    ("chosen", "inside"),
    [
        ("*", {"", "convolution", "encoder.linear1", "head.0"}),
        ("encoder", {"encoder.linear1"}),
        (["head", "recurrent"], {"head.0", "recurrent"}),
    ],
)
def test_a_run_whose_operators_are_recorded_is_bit_identical(chosen, inside, tmp_path):
    """And equal to itself: nothing in it is left to chance."""
    paths = [tmp_path / "a.trace", tmp_path / "b.trace"]
    plain = trained(Mixed, (2, 1, 8))

    watched = [trained(Mixed, (2, 1, 8), path, operators=chosen) for path in paths]

    assert plain.keys() == watched[0].keys()
    assert all(torch.equal(plain[name], watched[0][name]) for name in plain)
    with open_trace(paths[0]) as trace:
        assert trace.complete
        seen = {entry.site.component for entry in trace.sites if "].output" in entry.site.field}
    assert inside <= seen
    again = diff_runs(paths[0], [paths[1]], Policy())
    assert again.outcome.name == "PASS", again.reason


def operator_sites(path, step=1):
    with open_trace(path) as trace:
        columns = trace.columns(step)
        rows = [(trace.sites[site], int(call)) for site, call in
                zip(columns.site, columns.call, strict=True)]  # fmt: skip
    return [(str(entry.site), entry.location, call) for entry, call in rows
            if entry.site.phase == Phase.FORWARD]  # fmt: skip


def make_scaled(**options):
    return lambda: nn.Sequential(Scaled(**options), nn.Linear(3, 2))


def test_operators_come_between_the_inputs_and_outputs_of_their_module_with_their_lines(tmp_path):
    trained(make_scaled(), (4, 3), tmp_path / "a.trace", operators="0", capture="values")

    sites = operator_sites(tmp_path / "a.trace")

    inner = [(name.partition(":0:")[2], place) for name, place, _ in sites if ":0:" in name]
    assert [name for name, _ in inner] == [
        "input[0]",
        "aten.mul[0].input[0]", "aten.mul[0].input[1]", "aten.mul[0].output[0]",
        "aten.mul[1].input[0]", "aten.mul[1].input[1]", "aten.mul[1].output[0]",
        "aten.add_[0].input[1]", "aten.add_[0].output[0]",
        "output[0]",
    ]  # fmt: skip
    lines = {name.partition(".input")[0]: int(place.rpartition(":")[2]) for name, place in inner
             if ".input" in name}  # fmt: skip
    assert lines["aten.mul[1]"] == lines["aten.mul[0]"] + 4
    assert lines["aten.add_[0]"] == lines["aten.mul[1]"]
    assert not [name for name, _, _ in sites if ":1:aten" in name]


def test_the_first_operator_that_parts_is_named_with_its_line(tmp_path):
    paths = [tmp_path / "a.trace", tmp_path / "b.trace"]
    for path, factor in zip(paths, (2.0, 2.5), strict=True):
        trained(make_scaled(factor=factor), (4, 3), path, operators="0")

    first = diff_runs(paths[0], [paths[1]], Policy()).first

    assert first is not None
    assert (first.step, first.component, first.field) == (0, "0", "aten.mul[1].input[1]")
    assert first.location.rpartition(":")[0].endswith("test_operators.py")


class Draws(Scaled):
    """Draws a random number on the side, so that what is drawn after it is another one."""

    def forward(self, x):
        torch.rand(1)
        return super().forward(x)


def test_an_operator_with_equal_inputs_and_other_outputs_is_the_place(tmp_path):
    paths = [tmp_path / "a.trace", tmp_path / "b.trace"]
    for path, inner in zip(paths, (Scaled, Draws), strict=True):
        make = lambda inner=inner: nn.Sequential(inner(), nn.Dropout(0.4), nn.Linear(3, 2))  # noqa: E731
        trained(make, (4, 3), path, operators="1")

    first = diff_runs(paths[0], [paths[1]], Policy()).first

    assert first is not None
    assert (first.component, first.field) == ("1", "aten.bernoulli_[0].output[0]")
    assert [found.equal for found in first.evidence if found.what == "inputs"] == [True]


class Litter(nn.Module):
    """Leaves other numbers in freed memory each time."""

    chance = itertools.count()

    def forward(self, x):
        for _ in range(20):
            torch.full((7, 3), float(next(self.chance)))
        return x + 0


class Blank(nn.Module):
    """Writes in two portions into memory that it was given as it is."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        whole = torch.empty(7, 3)
        index = torch.arange(7)
        whole.index_put_((index[:4],), (x * self.weight).detach())
        doubled = whole * 2
        whole.index_put_((index[4:],), torch.zeros(3, 3))
        rest = torch.empty_like(whole).zero_() + 1
        return x * self.weight + whole[:4] + doubled[:4] + rest[:4]


def test_memory_that_nothing_was_written_to_yet_is_no_value(tmp_path):
    """What lies in it by chance differs in equal runs."""
    paths = [tmp_path / "a.trace", tmp_path / "b.trace"]
    for path in paths:
        trained(lambda: nn.Sequential(Litter(), Blank(), nn.Linear(3, 2)), (4, 3), path,
                operators="1", capture="values")  # fmt: skip

    result = diff_runs(paths[0], [paths[1]], Policy())
    fields = {name.partition(":1:")[2] for name, _, _ in operator_sites(paths[0])}

    assert result.outcome.name == "PASS", result.reason
    assert not [name for name in fields if "empty" in name and "output" in name]
    assert "aten.index_put_[0].output[0]" not in fields
    assert "aten.zero_[0].output[0]" in fields


def test_an_error_of_the_program_leaves_no_dispatch_mode_behind(tmp_path):
    torch.manual_seed(0)
    model = make_scaled(error=True)()
    with tp.record(tmp_path / "a.trace", operators="0"):
        for _ in range(2):
            with pytest.raises(ValueError, match="of the program"):
                model(torch.randn(4, 3))
            assert _get_current_dispatch_mode() is None
        model[0].error = False
        train(model, (4, 3), steps=2)

    assert _get_current_dispatch_mode() is None
    assert any("aten.mul" in name for name, _, _ in operator_sites(tmp_path / "a.trace"))


def test_traces_with_and_without_operators_do_not_pass_for_equal(tmp_path):
    """The operators of one side are no fault, and no evidence either."""
    paths = [tmp_path / "a.trace", tmp_path / "b.trace"]
    trained(make_scaled(), (4, 3), paths[0])
    trained(make_scaled(), (4, 3), paths[1], operators="0")

    result = diff_runs(paths[0], [paths[1]], Policy())

    assert result.outcome.name == "ABSTAIN"
    assert "--operators" in result.reason


def test_a_fault_of_ours_inside_an_operator_does_not_reach_the_program(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("ours")

    monkeypatch.setattr(operator_watch, "_written", fail)
    plain = trained(make_scaled(), (4, 3))

    watched = trained(make_scaled(), (4, 3), tmp_path / "a.trace", operators="0")

    assert all(torch.equal(plain[name], watched[name]) for name in plain)
    with open_trace(tmp_path / "a.trace") as trace:
        assert not trace.complete
        assert "lost" in trace.incomplete_reason
