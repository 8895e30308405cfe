"""Which samples were trained on: those whose gradients reached an update."""

import contextlib
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import traceparity as tp
from traceparity.differ.coverage import judge_coverage
from traceparity.differ.coverage_text import reason
from traceparity.differ.policy import Coverage
from traceparity.tracefmt.reader import open_run


class _Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index + 1))


def _judged(folder: Path, fault: str, count: str = "trained") -> str:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    path = folder / "run.trace"
    with tp.record(path):
        for number, batch in enumerate(DataLoader(_Rows(), batch_size=2)):
            if fault == "skip" and number == 1:
                continue
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            if fault == "forward" and number == 1:
                continue
            if fault == "scaler" and number == 1:
                scaler.scale(loss * float("inf")).backward()
                scaler.step(optimizer)
                scaler.update()
                continue
            loss.backward()
            if (fault == "cleared" and number == 1) or (fault == "tail" and number == 3):
                continue
            optimizer.step()
    coverage = Coverage("exactly_once", count=count)
    with contextlib.ExitStack() as stack:
        ranks = open_run(path)
        for trace in ranks.values():
            stack.enter_context(trace)
        return reason(judge_coverage([ranks], coverage))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("forward", "sample 2 in epoch 0: fetched in step 1, no backward pass followed"),
        ("cleared", "sample 2 in epoch 0: fetched in step 1, its gradients were cleared"),
        ("scaler", "sample 2 in epoch 0: fetched in step 1, the gradient scaler left"),
        ("tail", "sample 6 in epoch 0: fetched in step 3, no update followed"),
    ],
)
def test_what_reached_no_update_is_missing(tmp_path: Path, fault: str, why: str) -> None:
    assert why in _judged(tmp_path, fault)


def test_every_sample_that_reached_an_update_was_trained_on(tmp_path: Path) -> None:
    assert _judged(tmp_path, "") == "8 samples in 1 epoch satisfy exactly_once"


def test_the_epoch_of_a_fetched_batch_is_known(tmp_path: Path) -> None:
    assert _judged(tmp_path, "skip", "fetched") == "8 samples in 1 epoch satisfy exactly_once"
