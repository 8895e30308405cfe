"""Batches of datasets without sample IDs are told apart by their contents."""

import functools

import pytest
import recording
import torch
from judging import judged
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    """Samples as they come; ``copies`` of each four in a row, as many workers make them."""

    def __init__(self, copies: int) -> None:
        self.copies = copies

    def __iter__(self):
        for samples in torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(1)):
            for _ in range(self.copies):
                yield from samples


def train(copies: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        for inputs in DataLoader(Stream(copies), batch_size=4):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()


@pytest.mark.parametrize(("copies", "steps"), [(1, []), (2, [1])])
def test_a_stream_that_gives_each_batch_twice_is_found_by_contents(copies, steps, tmp_path):
    trace = tmp_path / "stream.trace"
    recording.record(functools.partial(train, copies), trace)

    causes = judged(trace).causes

    assert [each.first.step for each in causes if each.first.invariant == "batches-differ"] == steps
