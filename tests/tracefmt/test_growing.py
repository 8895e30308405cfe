"""A trace that is being written gives its steps as they come."""

import itertools

import pytest
from trace_story import Step, read_step, sample, scalar, write, write_step

from traceparity.tracefmt.errors import TraceError, TraceFormatError
from traceparity.tracefmt.growing import follow
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Header
from traceparity.tracefmt.writer import Writer

STORY = sample(5)


@pytest.fixture
def writer(tmp_path):
    """Writes ``a.trace``."""
    made = Writer(tmp_path / "a.trace", Header)
    made.open()
    yield made
    made.abandon()


def entries(trace):
    return [(step.number, step.observations, step.phase_digests) for step in trace.steps]


def test_a_followed_trace_holds_after_each_step_what_a_reader_of_the_file_finds(writer):
    path = writer.path
    with follow(path) as growing:
        assert growing.grow() == []
        for step in STORY:
            write_step(writer, step)

            assert growing.grow() == [step.number]
            with open_trace(path) as read:
                assert entries(growing) == entries(read)
                assert growing.sites == read.sites
            assert read_step(growing, step.number) == step
        assert not growing.ended
        writer.close()

        assert growing.grow() == []
        assert growing.ended
        assert [read_step(growing, step.number) for step in growing.steps] == STORY


@pytest.mark.parametrize("stride", [1, 37, 400])
def test_a_file_that_grows_by_any_number_of_bytes_is_followed(tmp_path, stride):
    """A reader may see half of a record, and several at once."""
    data = write(tmp_path / "whole.trace", STORY).read_bytes()
    path, seen = tmp_path / "a.trace", []
    begin = 2000
    path.write_bytes(data[:begin])
    with follow(path) as growing, path.open("ab", buffering=0) as stream:
        for start in itertools.count(begin, stride):
            seen += growing.grow()
            if start >= len(data):
                break
            stream.write(data[start : start + stride])

        assert seen == [step.number for step in STORY]
        assert [read_step(growing, number) for number in seen] == STORY


def test_a_step_that_gets_more_is_told_again(writer):
    """Its scheduler comes after its update."""
    write_step(writer, Step(0, (scalar(0.1),)))
    with follow(writer.path) as growing:
        assert growing.grow() == [0]
        write_step(writer, Step(0, (scalar(0.2),)))
        write_step(writer, Step(1, (scalar(0.3),)))

        assert growing.grow() == [0, 1]
        assert [len(growing.columns(number)) for number in (0, 1)] == [2, 1]
        assert [step.number for step in growing.steps] == [0, 1]


def test_a_step_that_is_not_over_is_kept_back_until_the_next_one_begins(writer):
    write_step(writer, Step(0, (scalar(0.1),)), last=False)
    with follow(writer.path) as growing:
        assert growing.grow() == []
        assert growing.steps == []
        write_step(writer, Step(1, (scalar(0.2),)))

        assert growing.grow() == [0, 1]
        assert all(step.whole for step in growing.steps)


def test_what_is_no_trace_is_told_at_once_and_damage_when_it_is_met(tmp_path):
    (tmp_path / "text.trace").write_text("no trace at all, but a long enough text" * 9)
    path = write(tmp_path / "a.trace", STORY)
    data = bytearray(path.read_bytes())
    with open_trace(path) as trace:
        data[trace.steps[2].chunks[0][0] + 60] ^= 1
    path.write_bytes(data)

    with pytest.raises(TraceFormatError, match="not a trace"):
        follow(tmp_path / "text.trace")
    with pytest.raises(TraceError, match="No such file"):
        follow(tmp_path / "none.trace")
    with follow(path) as growing, pytest.raises(TraceError, match="cannot be followed"):
        growing.grow()
