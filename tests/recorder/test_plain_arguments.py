"""Plain values that a program gives its modules."""

import numpy as np
import pytest
import torch
from torch import nn

import traceparity as tp
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy, Rule
from traceparity.tracefmt.reader import open_trace


class Turned(nn.Module):
    """A layer whose argument leaves no mark on what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, values, factor):
        return self.layer(values)


def trained(path, factor):
    torch.manual_seed(0)
    model = Turned()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tp.record(path, overwrite=True):
        model(torch.ones(3, 2), factor).square().mean().backward()
        optimizer.step()
    return path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1 + 1j, 1 + 1.0001j),
        (complex(0, float("inf")), complex(0, -float("inf"))),
        (np.float32(1), np.float32(1.0001)),
        (np.int64(3), np.int64(4)),
        (np.complex64(1j), np.complex64(2j)),
        (np.bool_(True), np.bool_(False)),
        (2**80, 2**80 + 1),
    ],
)
def test_scalars_of_every_sort_are_compared(tmp_path, one, other):
    paths = [trained(tmp_path / f"{name}.trace", each) for name, each in (("a", one), ("b", other))]

    first = diff_runs(paths[0], [paths[1]], Policy()).first

    assert (first.phase, first.field) == ("forward", "input[1]")
    assert diff_runs(paths[0], [paths[0]], Policy()).first is None


def test_a_tolerance_holds_for_both_parts_of_a_complex_number(tmp_path):
    paths = [trained(tmp_path / f"{name}.trace", 1 + 1j * name) for name in (1, 1.0001)]

    for limit, fails in ((1e-3, False), (1e-5, True)):
        result = diff_runs(paths[0], [paths[1]], Policy(rules=(Rule("*", rel_l2=limit),)))
        assert (result.first is not None) is fails


def test_a_complex_number_is_kept_with_its_parts(tmp_path):
    with open_trace(trained(tmp_path / "a.trace", 1.5 - 2j)) as trace:
        columns = trace.columns(0)
        fields = [trace.sites[number].site.field for number in columns.site]
        assert trace.scalar(columns, fields.index("input[1]")) == {"real": 1.5, "imag": -2.0}
