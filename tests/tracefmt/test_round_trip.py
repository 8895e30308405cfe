"""What was written is what is read."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from trace_story import Seen, Step, add, read_step, sample, scalar, sketch, write, write_step

from traceparity.tracefmt import limits
from traceparity.tracefmt.errors import TraceExistsError, TraceFormatError, TraceNotFoundError
from traceparity.tracefmt.reader import Trace, open_run
from traceparity.tracefmt.records import Flag, Header, NotObserved, Phase
from traceparity.tracefmt.rows import Rows
from traceparity.tracefmt.writer import Writer


@contextmanager
def closing_all(run: dict[int, Trace]) -> Iterator[dict[int, Trace]]:
    """The traces of a run, closed at the end."""
    with ExitStack() as stack:
        for trace in run.values():
            stack.enter_context(trace)
        yield run


def test_every_kind_of_observation_comes_back(tmp_path, opened):
    story = sample()

    trace = opened(write(tmp_path / "a.trace", story))

    assert [read_step(trace, step.number) for step in trace.steps] == list(story)
    assert trace.complete
    assert trace.incomplete_reason == ""


def test_the_header_comes_back(tmp_path, opened):
    header = Header(
        program="train.py",
        arguments=("--lr", "3e-4", "naïve"),
        process={"pid": 12, "started": 1.5},
        rank=1,
        world_size=2,
        versions={"torch": "2.12.0"},
        environment={"device": ["cpu"], "git": {"commit": "abc", "dirty": True}, "tf32": None},
        capture={"level": "sketch"},
        session="s",
    )

    trace = opened(write(tmp_path / "a.trace", [], header=header))

    assert trace.header == header
    assert len(trace.steps) == 0


def test_a_header_may_hold_bytes_that_are_no_utf_8(tmp_path, opened):
    """Arguments of a program are what the operating system gives; a trace is UTF-8."""
    header = Header(arguments=(b"caf\xe9".decode("utf-8", "surrogateescape"),))

    trace = opened(write(tmp_path / "a.trace", [], header=header))

    assert trace.header.arguments == ("caf\\udce9",)


def test_the_values_of_scalars_come_back(tmp_path, opened):
    values = [None, True, 3, -1.5, "text", [1, "two", [3.0]], {"b": 1, "a": {"c": None}}]
    step = Step(0, tuple(scalar(value, str(number)) for number, value in enumerate(values)))

    trace = opened(write(tmp_path / "a.trace", [step]))
    columns = trace.columns(0)

    assert [trace.scalar(columns, row) for row in range(len(columns))] == values


def test_a_step_in_several_parts_is_one_table(tmp_path, opened):
    story = sample()

    whole = opened(write(tmp_path / "a.trace", story))
    parts = opened(write(tmp_path / "b.trace", story, parts=4))

    assert [len(step.chunks) for step in parts.steps] == [4, 4, 4]
    assert [read_step(parts, step.number) for step in parts.steps] == list(story)
    assert sum(len(part) for part in parts.parts(1)) == len(whole.columns(1))


def test_large_steps_are_split_and_read_as_one(tmp_path, monkeypatch, opened):
    monkeypatch.setattr(Rows.parts, "__defaults__", (1000,))
    seen = tuple(
        Seen(
            field=f"output[{number}]",
            digest=bytes([number]) * 16,
            sketch=sketch(number) if number % 3 else None,
            value=bytes([number]) * number if number % 2 else None,
        )
        for number in range(60)
    )

    trace = opened(write(tmp_path / "a.trace", [Step(0, seen)]))

    assert len(trace.steps[0].chunks) > 10
    assert read_step(trace, 0).seen == seen


def test_a_step_too_long_for_one_table_is_read_part_by_part(tmp_path, monkeypatch, opened):
    trace = opened(write(tmp_path / "a.trace", sample(), parts=4))
    monkeypatch.setattr(limits, "MAX_STEP", 1500)

    with pytest.raises(TraceFormatError, match=r"a\.trace: step 1: .*part by part"):
        trace.columns(1)
    assert sum(len(part) for part in trace.parts(1)) == 8


def test_a_value_longer_than_a_record_takes_several(tmp_path, monkeypatch, opened):
    monkeypatch.setattr(limits, "MAX_VALUE_RECORD", 64)
    value = bytes(range(256)) * 3
    step = Step(0, (Seen(value=value, external=True),))
    trace = opened(write(tmp_path / "a.trace", [step]))
    columns = trace.columns(0)

    assert trace.value(columns, 0) == value
    assert [len(piece) for piece in trace.value_pieces(columns, 0)] == [64] * 12


def test_a_value_too_long_for_memory_is_read_piece_by_piece(tmp_path, monkeypatch, opened):
    value = bytes(200)
    trace = opened(write(tmp_path / "a.trace", [Step(0, (Seen(value=value, external=True),))]))
    columns = trace.columns(0)
    monkeypatch.setattr(limits, "MAX_VALUE", 100)

    with pytest.raises(TraceFormatError, match="piece by piece"):
        trace.value(columns, 0)
    assert b"".join(trace.value_pieces(columns, 0)) == value


def test_the_bytes_of_equal_tensors_are_written_once(tmp_path, opened):
    seen = tuple(Seen(call=call, value=bytes(5000), external=True) for call in range(3))

    trace = opened(write(tmp_path / "a.trace", [Step(0, seen)]))

    assert len(set(trace.columns(0).value_offset.tolist())) == 1


def test_empty_values_and_empty_steps_come_back(tmp_path, opened):
    story = [Step(0, ()), Step(3, (Seen(value=b"", shape=(0,)), Seen(value=b"", external=True)))]

    trace = opened(write(tmp_path / "a.trace", story))

    assert [read_step(trace, step.number) for step in trace.steps] == story


def test_steps_are_a_sequence(tmp_path, opened):
    trace = opened(write(tmp_path / "a.trace", sample(5), parts=2))
    numbers = [step.number for step in trace.steps]

    assert numbers == [0, 1, 2, 3, 4]
    assert trace.steps[-1].number == 4
    assert [step.number for step in trace.steps[1:3]] == [1, 2]
    assert list(trace.steps) == [trace.steps[number] for number in numbers]
    with pytest.raises(IndexError):
        trace.steps[5]
    with pytest.raises(KeyError):
        trace.columns(9)


def test_what_was_not_observed_comes_back_once(tmp_path, opened):
    writer = Writer(tmp_path / "a.trace", Header)
    for _ in range(2):
        writer.not_observed("model.compiled", "torch.compile")
    writer.not_observed("", "vmap")
    writer.close()

    assert opened(tmp_path / "a.trace").not_observed == [
        NotObserved("model.compiled", "torch.compile"),
        NotObserved("", "vmap"),
    ]


def test_a_statistic_beyond_single_precision_is_an_infinity(tmp_path, opened):
    writer, rows = Writer(tmp_path / "a.trace", Header), Rows()
    site = writer.site(Phase.LOSS, "loss", "value")
    rows.tensor(site, 0, 0, 0, 0, 0, 0, bytes(16), (-1e39, 1e300, math.nan))
    writer.write(0, rows)
    writer.close()

    stats = opened(tmp_path / "a.trace").columns(0).stats[0]

    assert stats[:2].tolist() == [-math.inf, math.inf]
    assert np.isnan(stats[2])


def test_rows_gathered_apart_are_joined(tmp_path, opened):
    """Batches are seen before their step begins: their rows move over, values and sketches too."""
    writer, early, rows = Writer(tmp_path / "a.trace", Header), Rows(), Rows()
    prefetched = Seen(phase=Phase.DATA, flags=Flag.CONTEXT | Flag.STATEFUL, sketch=sketch(9))
    add(writer, early, prefetched)
    add(writer, early, scalar([1, 2], "sample_ids"))
    first = Seen(sketch=sketch(), value=b"abc")
    add(writer, rows, first)
    rows.extend(early, microbatch=4, without=Flag.CONTEXT)
    rows.extend(Rows())
    writer.write(0, rows)
    writer.close()

    trace = opened(tmp_path / "a.trace")
    columns, seen = trace.columns(0), read_step(trace, 0).seen

    assert seen[0] == first
    assert columns.microbatch.tolist() == [0, 4, 4]
    assert seen[1].flags == Flag.STATEFUL
    assert seen[1].sketch == sketch(9)
    assert trace.scalar(columns, 2) == [1, 2]


def test_long_values_are_refused_inside_a_chunk():
    rows = Rows()

    with pytest.raises(ValueError, match=r"Writer\.value"):
        rows.tensor(0, 0, 0, 0, 0, 0, 0, bytes(16), value=bytes(limits.MAX_INLINE + 1))
    assert len(rows) == 0


def test_a_trace_that_exists_is_not_overwritten(tmp_path):
    path = tmp_path / "a.trace"
    path.write_text("mine")

    with pytest.raises(TraceExistsError, match="--overwrite"):
        Writer(path, Header).open()
    assert path.read_text() == "mine"


def test_nothing_is_created_before_something_is_said(tmp_path):
    writer = Writer(lambda: tmp_path / "a.trace", Header)
    writer.string("name")
    writer.abandon()

    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_ranks_is_one_run(tmp_path):
    for rank in (10, 2, 0):
        write(tmp_path / f"rank{rank}.trace", sample(rank % 3 + 1))
    (tmp_path / "notes.txt").touch()

    with closing_all(open_run(tmp_path)) as run:
        assert {rank: len(trace.steps) for rank, trace in run.items()} == {0: 1, 2: 3, 10: 2}
        assert list(run) == [0, 2, 10]


def test_a_single_file_is_rank_0(tmp_path):
    path = write(tmp_path / "a.trace", sample(1), header=Header(rank=3))

    with closing_all(open_run(path)) as run:
        assert list(run) == [0]


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ([], TraceNotFoundError, "holds no rank<N>.trace"),
        (["rank1.trace", "rank01.trace"], TraceFormatError, "two files are rank 1"),
    ],
)
def test_a_folder_that_is_no_run_is_refused(tmp_path, names, error, message):
    for name in names:
        write(tmp_path / name, sample(1))

    with pytest.raises(error, match=message):
        open_run(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TraceNotFoundError, match=r"gone\.trace: no such file"):
        open_run(tmp_path / "gone.trace")


def test_a_trace_can_be_read_while_it_is_written(tmp_path, opened):
    story = sample()
    writer = Writer(tmp_path / "a.trace", Header)
    for step in story:
        write_step(writer, step)
        trace = opened(tmp_path / "a.trace")

        assert read_step(trace, step.number) == step
        assert not trace.complete
    writer.close()
