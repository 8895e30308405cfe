"""Tensors on a device: the numbers are made there and fetched once a step.

No device is needed: the CPU is taken for one, and the traces are compared with those of a CPU.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import traceparity
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy
from traceparity.differ.result import Outcome
from traceparity.recorder import observe, word_digest
from traceparity.recorder.word_digest import BLOCK, WordDigester
from traceparity.tracefmt.reader import open_trace

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.norm = nn.BatchNorm1d(8)
        self.frozen = nn.Linear(8, 8).requires_grad_(requires_grad=False)
        self.last = nn.Linear(8, 3)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        hidden = self.frozen(self.norm(self.embed(index)))
        result: torch.Tensor = self.last(torch.relu(hidden))
        return result


def train(*, nan_at: int = -1, wrong_at: int = -1) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.arange(16) % 9, 4)
    for number, batch in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), batch % 3)
        if number == nan_at:
            loss = loss * float("nan")
        loss.backward()
        if number == wrong_at:
            model.last.weight.grad.view(-1).view(torch.int32)[5] ^= 1
        optimizer.step()
        with torch.no_grad():
            model.eval()(batch)
            model.train()


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(observe, "DEVICES", frozenset({"cpu"}))


def record(path: Path, **faults: int) -> Path:
    with traceparity.record(path):
        train(**faults)
    return path


def rows(path: Path) -> Iterator[tuple[object, ...]]:
    """All of every row except its digest."""
    with open_trace(path) as trace:
        for number in (entry.number for entry in trace.steps):
            columns = trace.columns(number)
            for at in range(len(columns.site)):
                yield (
                    number,
                    str(trace.sites[columns.site[at]].site),
                    columns.flags[at],
                    columns.nonfinite[at],
                    columns.sketch_row[at] >= 0,
                    columns.stats[at].round(4).tolist(),
                    trace.value(columns, at),
                )


def test_a_device_gives_the_same_rows_as_the_cpu(tmp_path: Path, on_device) -> None:
    host = record(tmp_path / "host.trace", nan_at=2)
    on_device()
    device = record(tmp_path / "device.trace", nan_at=2)

    assert list(map(repr, rows(device))) == list(map(repr, rows(host)))


def test_two_equal_runs_pass_and_one_bit_fails_at_its_place(tmp_path: Path, on_device) -> None:
    on_device()
    first, second = record(tmp_path / "a.trace"), record(tmp_path / "b.trace")
    wrong = record(tmp_path / "c.trace", wrong_at=2)

    assert diff_runs(first, [second], Policy(), None).outcome is Outcome.PASS
    found = diff_runs(first, [wrong], Policy(), None)
    assert found.outcome is Outcome.FAIL
    place = found.divergences[0]
    assert (place.step, place.phase, place.component) == (2, "gradient", "last.weight")


def test_digests_of_two_kinds_are_never_compared(tmp_path: Path, on_device) -> None:
    host = record(tmp_path / "host.trace")
    on_device()
    device = record(tmp_path / "device.trace")

    assert diff_runs(host, [device], Policy(), None).outcome is Outcome.ABSTAIN


def specified(data: bytes) -> list[int]:
    """The lanes of one block as the module's docstring defines them."""
    words = np.frombuffer(data + bytes(-len(data) % 4), "<i4").tolist()
    scale = int(word_digest.scales(1)[0])
    return [
        sum(word * int(table[i]) * scale for i, word in enumerate(words)) % 2**64
        for table in word_digest.multipliers()
    ]


@pytest.fixture(scope="module")
def digester() -> WordDigester:
    return WordDigester(torch.device("cpu"))


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=64), st.sampled_from(DTYPES), st.integers(0, 3))
def test_lanes_are_as_specified(digester, data: bytes, dtype: torch.dtype, skip: int) -> None:
    size = dtype.itemsize
    data = data[: len(data) // size * size]
    memory = torch.tensor(list(bytes(skip * size) + data), dtype=torch.uint8)
    tensor = memory.view(dtype)[skip:]

    assert [lane % 2**64 for lane in digester.lanes(tensor).tolist()] == specified(data)


def test_lanes_of_several_blocks_are_as_specified(digester) -> None:
    tensor = torch.arange(9 * BLOCK + 5, dtype=torch.int32) * 77_777

    lanes = [lane % 2**64 for lane in digester.lanes(tensor).tolist()]
    assert lanes == specified_fast(tensor.numpy())


def specified_fast(words: np.ndarray) -> list[int]:
    blocks = [words[start : start + BLOCK] for start in range(0, len(words), BLOCK)]
    scales = word_digest.scales(len(blocks)).tolist()
    return [
        sum(
            int((block.astype(np.int64) * table[: len(block)]).sum()) * scale
            for block, scale in zip(blocks, scales, strict=True)
        )
        % 2**64
        for table in word_digest.multipliers()
    ]
