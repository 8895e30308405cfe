"""What a trace says of a loader's passes and samples, beside the batches themselves."""

from collections.abc import Iterator
from typing import Any

import pytest
from workshop import Workshop

from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Flag, Phase

pytestmark = pytest.mark.slow

PROGRAM = """
    import torch
    from torch.utils.data import DataLoader, Subset, TensorDataset

    torch.manual_seed(0)
    names = torch.arange(100, 112)
    wide = torch.arange(3000).expand(12, 3000).contiguous()
    table = TensorDataset(names, torch.randn(12, 3), wide)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(batch):
        optimizer.zero_grad()
        model(batch[1]).sum().backward()
        optimizer.step()

    first = DataLoader(table, batch_size=4)
    for _ in range(2):
        for batch in first:
            fit(batch)
    part = DataLoader(Subset(Subset(table, [9, 7, 5, 3]), [3, 0, 1]), batch_size=1)
    for number, batch in enumerate(part):
        if number:
            fit(batch)
    listed = DataLoader(table, batch_size=6)
    for batch in list(listed):
        fit(batch)
    left = DataLoader(table, batch_size=6)
    for batch in left:
        fit(batch)
        break
    with torch.no_grad():
        for batch in DataLoader(table, batch_size=6):
            model(batch[1])
"""


@pytest.fixture(scope="module")
def rows(shared_workshop: Workshop) -> list[tuple[int, str, str, Any, int]]:
    """The rows of loaders: step, component, field, value, flags."""
    shared_workshop.write("loaders.py", PROGRAM)
    command = ("tp-record", "--capture", "digest", "-o", "run.trace", "--", "loaders.py")
    assert shared_workshop.run(*command).status == 0
    return list(read(shared_workshop))


def read(workshop: Workshop) -> Iterator[tuple[int, str, str, Any, int]]:
    with open_trace(workshop.trace) as trace:
        for entry in trace.steps:
            columns = trace.columns(entry.number)
            for row in range(len(columns)):
                site = trace.sites[columns.site[row]].site
                if site.phase == Phase.DATA:
                    tensor = columns.dtype[row] != 0
                    value = trace.value(columns, row) if tensor else trace.scalar(columns, row)
                    flags = int(columns.flags[row])
                    yield entry.number, site.component, site.field, value, flags


def found(rows: list[tuple[int, str, str, Any, int]], component: str, field: str) -> list[Any]:
    return [row[3] for row in rows if row[1:3] == (component, field)]


def test_the_end_of_a_pass_is_recorded_in_its_last_step(rows):
    ends = [(row[0], row[3]) for row in rows if row[1:3] == ("loader[0]", "pass_end")]

    assert ends == [(2, {"epoch": 0, "batches": 3}), (5, {"epoch": 1, "batches": 3})]


def test_a_pass_that_ended_before_anything_was_trained_on_is_told_when_it_is(rows):
    """As with ``list(loader)``: what the loader is called is known later."""
    assert found(rows, "loader[2]", "pass_end") == [{"epoch": 0, "batches": 2}]


def test_a_pass_that_the_program_left_has_no_end(rows):
    assert found(rows, "loader[3]", "pass_end") == []


def test_a_part_of_a_dataset_lists_the_samples_of_the_whole_one_once(rows):
    assert found(rows, "loader[1]", "dataset_ids") == [[3, 9, 7]]
    assert sorted(found(rows, "loader[1]", "sample_ids")) == [[3], [7], [9]]
    assert found(rows, "loader[0]", "dataset_ids") == []


def test_a_batch_skipped_before_the_first_training_belongs_to_its_loader(rows):
    batches = {
        row[3][0]: row[4] & Flag.CONTEXT for row in rows if row[1:3] == ("loader[1]", "sample_ids")
    }

    assert batches == {3: Flag.CONTEXT, 9: 0, 7: 0}


def test_an_evaluation_has_no_numbered_loader(rows):
    assert found(rows, "loader", "sample_ids") == [[*range(6)], [*range(6, 12)]]


def test_whole_numbers_of_one_dimension_keep_their_values_at_every_level(rows):
    """They may name samples; other tensors of the batch keep a digest."""
    names = found(rows, "loader[0]", "batch[0]")

    assert [len(value) for value in names] == [32] * 6
    assert set(found(rows, "loader[0]", "batch[1]")) == {None}
    assert set(found(rows, "loader[0]", "batch[2]")) == {None}
