"""Sample IDs of every kind of loader: those of the batch that was delivered, or nobody knows.

Each sample says its own ID in the batch, so what the recorder says can be checked.
"""

import importlib
import importlib.util
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
)
from workshop import Workshop

import traceparity
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Flag

COUNT = 24


class Table(Dataset[Any]):
    """Samples that take unequal time in a worker, so that batches overtake one another."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is not None and index % 5 == 0:
            torch.randn(300, 300) @ torch.randn(300, 300)
        return torch.tensor(index), torch.full((3,), float(index))


class Stream(IterableDataset[Any]):
    """Split over its workers."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        start, stride = (info.id, info.num_workers) if info is not None else (0, 1)
        for index in range(start, COUNT, stride):
            yield torch.tensor(index), torch.full((3,), float(index))


class Unasked(Table):
    """It answers by exceptions, of a kind that few expect."""

    def __len__(self) -> int:
        raise NotImplementedError


class Later(BatchSampler):
    """Leaves out the first batches of another one and knows nothing of samplers, after a resume."""

    def __init__(self, batch_sampler: Any, skipped: int) -> None:
        self.batch_sampler, self.skipped = batch_sampler, skipped

    def __iter__(self) -> Iterator[list[int]]:
        return itertools.islice(iter(self.batch_sampler), self.skipped, None)

    def __len__(self) -> int:
        return len(self.batch_sampler) - self.skipped


class Named(Dataset[Any]):
    """Samples are dictionaries with text and something nested."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        row = torch.full((3,), float(index))
        return {"id": torch.tensor(index), "name": f"n{index}", "more": ({"row": row}, [row])}


def batches(loader: Iterable[Any], passes: int = 1) -> Iterator[tuple[Any, Any]]:
    for _ in range(passes):
        yield from loader


def workers(**options: Any) -> DataLoader[Any]:
    return DataLoader(Table(), 4, shuffle=True, num_workers=2, **options)


def made_anew() -> Iterator[Any]:
    for _ in range(2):
        yield from DataLoader(Table(), 4, shuffle=True)


def left_early() -> Iterator[Any]:
    loader = workers(prefetch_factor=3)
    for _ in range(2):
        yield from itertools.islice(loader, 2)


def zipped() -> Iterator[Any]:
    first, second = DataLoader(Table(), 4, shuffle=True), DataLoader(Table(), 4, shuffle=True)
    for (ids, inputs), (others, more) in zip(first, second, strict=True):
        yield torch.cat([ids, others]), (inputs, more)


def named() -> Iterator[Any]:
    for batch in DataLoader(Named(), 4, shuffle=True):
        yield batch["id"], batch["more"][0]["row"]


def as_it_comes() -> Iterator[Any]:
    for sample, row in DataLoader(Table(), batch_size=None, shuffle=True):
        yield sample[None], row[None]


def stateful() -> Iterator[Any]:
    """Left in the middle and taken up again by another loader."""
    module = importlib.import_module("torchdata.stateful_dataloader")
    torch.manual_seed(3)
    loader = module.StatefulDataLoader(Table(), 4, shuffle=True, num_workers=2)
    yield from itertools.islice(loader, 2)
    state = loader.state_dict()
    again = module.StatefulDataLoader(Table(), 4, shuffle=True, num_workers=2)
    again.load_state_dict(state)
    yield from again


def arrow() -> Iterator[Any]:
    module = importlib.import_module("datasets")
    rows = [[float(index)] * 3 for index in range(COUNT)]
    data = module.Dataset.from_dict({"id": list(range(COUNT)), "row": rows}).with_format("torch")
    for batch in DataLoader(data, 4, shuffle=True):
        yield batch["id"], batch["row"]


def collected() -> Iterator[tuple[list[int], Any]]:
    """A pass is collected first, and trained on in another order."""
    yield from list(batches(DataLoader(Table(), 4, shuffle=True)))[::-1]


KINDS: dict[str, Callable[[], Iterable[Any]]] = {
    "no workers": lambda: batches(DataLoader(Table(), 4, shuffle=True), 2),
    "workers": lambda: batches(workers()),
    "prefetch": lambda: batches(workers(prefetch_factor=5)),
    "persistent workers": lambda: batches(workers(persistent_workers=True), 2),
    "out of order": lambda: batches(workers(in_order=False)),
    "batch sampler": lambda: batches(
        DataLoader(
            Table(),
            batch_sampler=BatchSampler(RandomSampler(Table()), 5, drop_last=True),
        )
    ),
    "later batches": lambda: batches(
        DataLoader(
            Table(),
            batch_sampler=Later(BatchSampler(RandomSampler(Table()), 5, drop_last=True), 2),
        )
    ),
    "unasked": lambda: batches(DataLoader(Unasked(), 4, sampler=RandomSampler(Table()))),
    "weighted": lambda: batches(
        DataLoader(Table(), 4, sampler=WeightedRandomSampler(range(1, COUNT + 1), 12))
    ),
    "distributed": lambda: batches(
        DataLoader(Table(), 4, sampler=DistributedSampler(Table(), num_replicas=2, rank=1))
    ),
    "subset": lambda: batches(DataLoader(Subset(Table(), range(3, 19, 2)), 4, shuffle=True)),
    "no batches": as_it_comes,
    "made anew": made_anew,
    "left early": left_early,
    "named": named,
    "collected": collected,
    "stateful": stateful,
    "arrow": arrow,
}
NEEDS = {"stateful": "torchdata", "arrow": "datasets"}


def train(samples: Iterable[Any]) -> list[list[int]]:
    """Train on what comes and say which samples that was, a list for each step."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = []
    for ids, inputs in samples:
        optimizer.zero_grad()
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        sum(model(part).square().mean() for part in parts).backward()
        optimizer.step()
        seen.append([int(each) for each in ids])
    return seen


def recorded(workshop: Workshop, field: str = "sample_ids") -> list[list[Any]]:
    """What the trace says of the samples of each step, of several loaders one after the other."""
    found = []
    with open_trace(workshop.trace) as trace:
        assert trace.complete, trace.incomplete_reason
        for step in trace.steps:
            columns = trace.columns(step.number)
            here = [
                (trace.sites[columns.site[row]].site.component, trace.scalar(columns, row))
                for row in range(len(columns))
                if trace.sites[columns.site[row]].site.field == field
                and not (field == "sample_ids" and columns.flags[row] & Flag.CONTEXT)
            ]
            found.append([value for _, value in sorted(here, key=lambda pair: pair[0])])
    return found


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # by torchdata
@pytest.mark.parametrize("kind", KINDS)
def test_sample_ids_are_those_of_the_batch(kind: str, workshop: Workshop) -> None:
    if kind in NEEDS and importlib.util.find_spec(NEEDS[kind]) is None:
        pytest.skip(f"{NEEDS[kind]} is not installed")
    torch.manual_seed(1)
    with traceparity.record(workshop.trace, capture="digest"):
        seen = train(KINDS[kind]())

    assert len(seen) >= 2
    assert recorded(workshop) == [[ids] for ids in seen]


def test_both_batches_of_two_loaders_side_by_side_are_told(workshop: Workshop) -> None:
    torch.manual_seed(1)
    with traceparity.record(workshop.trace, capture="digest"):
        seen = train(zipped())

    assert [[*itertools.chain(*ids)] for ids in recorded(workshop)] == seen


def test_the_parts_of_a_concatenation_are_numbered_through(workshop: Workshop) -> None:
    whole = ConcatDataset([Subset(Table(), range(12)), Subset(Table(), range(12, 24))])
    with traceparity.record(workshop.trace, capture="digest"):
        seen = train(batches(DataLoader(whole, 4)))

    assert recorded(workshop) == [[ids] for ids in seen]


@pytest.mark.parametrize("count", [0, 2])
def test_nobody_knows_the_ids_of_a_stream(count: int, workshop: Workshop) -> None:
    """Its batches are told by their contents, and by the worker that made them."""
    with traceparity.record(workshop.trace, capture="digest"):
        seen = train(batches(DataLoader(Stream(), 4, num_workers=count)))

    assert recorded(workshop) == [[None]] * len(seen)
    of_workers = [0, 1] * 3 if count else [None] * 6
    assert recorded(workshop, "worker") == [[number] for number in of_workers]
    digests = recorded(workshop, "sample_digests")
    assert len({each for (batch,) in digests for each in batch}) == COUNT


def fit_augmented(second_worker: int) -> None:
    """Workers add noise; the second one's generator is seeded with the given number."""

    class Augmented(Table):
        def __getitem__(self, index: int) -> Any:
            sample, row = super().__getitem__(index)
            return sample, row + torch.from_numpy(np.random.rand(3)).float()

    def seeded(worker: int) -> None:
        np.random.seed(second_worker if worker else 100)

    torch.manual_seed(1)
    loader = DataLoader(Augmented(), 4, num_workers=2, worker_init_fn=seeded)
    train(batches(loader))


def test_a_worker_with_another_generator_is_named(workshop: Workshop, commands: Any) -> None:
    """Equal IDs, other contents: found in the data, before the model is reached."""
    traces = []
    for name, seed in (("reference", 101), ("twin", 101), ("target", 7)):
        traces.append(workshop.folder / f"{name}.trace")
        with traceparity.record(traces[-1]):
            fit_augmented(seed)

    assert commands.diff(*traces[:2])["outcome"] == "PASS"
    result = commands.diff(traces[0], traces[2])
    place = result["first_divergence"]
    assert (result["outcome"], place["phase"], place["step"]) == ("FAIL", "data", 1)
    assert place["field"] == "batch[1]"
    assert any("worker 1" in str(each) for each in place["evidence"]), place["evidence"]
