"""Recordings of the corpus, each made once, in forks of this process."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Test modules are no package, so what they share is found by path.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "cases" / "invariants")]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The trace of ``train(bug, seed)``, of one process or several."""
    import recording
    import torch

    # All forks share what optimizers import; training here would start threads, which are not.
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    folder = tmp_path_factory.mktemp("corpus")
    known: dict[Any, Path] = {}

    def recorded(train: Any, bug: str = "", seed: int = 0, processes: int = 1) -> Path:
        key = (train, bug, seed)
        if key not in known:
            known[key] = folder / f"{len(known)}.trace"
            run = functools.partial(train, bug, seed)
            if processes == 1:
                recording.record(run, known[key])
            else:
                recording.record_ranks(run, known[key], processes)
        return known[key]

    return recorded


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The trace of a sound program that looks odd."""
    import recording
    import torch

    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    folder = tmp_path_factory.mktemp("healthy")

    def healthy(program: Callable[[str], None]) -> Path:
        trace = folder / f"{program.__name__}.trace"
        recording.record(functools.partial(program, str(folder)), trace)
        return trace

    return healthy
