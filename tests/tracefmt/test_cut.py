"""A file that ends anywhere gives everything that was flushed before."""

import contextlib
import itertools

import pytest
from trace_story import Seen, Step, read_step, sample, scalar, write, write_step

from traceparity.tracefmt import framing
from traceparity.tracefmt.errors import TraceFormatError, TruncatedError
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Header
from traceparity.tracefmt.recovery import CUT_OFF, finish_file
from traceparity.tracefmt.source import open_file
from traceparity.tracefmt.writer import Writer

STORY = [
    Step(0, (Seen(value=bytes(40), external=True), scalar(0.1), Seen(component="b"))),
    Step(1, (Seen(call=1), scalar(0.2))),
    Step(2, (Seen(component="late"), scalar(0.3))),
]


@pytest.mark.slow
def test_a_cut_trace_gives_every_step_that_ends_before_the_cut(tmp_path):
    """Every length is tried."""
    path = tmp_path / "a.trace"
    writer, ends = Writer(path, Header), []
    for step in STORY:
        write_step(writer, step)
        ends.append(writer.bytes_written)
    writer.close()
    data = path.read_bytes()
    with contextlib.closing(open_file(path)) as source:
        _, header = framing.read_beginning(source)

    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        if cut < header.end:
            with pytest.raises(TraceFormatError):
                open_trace(path)
            continue
        with open_trace(path) as trace:
            whole = sum(end <= cut for end in ends)

            assert [read_step(trace, step.number) for step in trace.steps] == STORY[:whole]
            assert trace.unfinished is None
            assert not trace.complete
            assert trace.incomplete_reason == CUT_OFF
            assert trace.damage == ()


def test_the_error_of_a_cut_header_says_what_is_sound(tmp_path):
    path = write(tmp_path / "a.trace", STORY)
    path.write_bytes(path.read_bytes()[:30])

    with pytest.raises(TruncatedError, match="first 16 bytes are sound") as caught:
        open_trace(path)
    assert caught.value.offset == 16


@pytest.fixture
def cut_inside_a_step(tmp_path):
    """A killed process that had written two of three parts of step 1."""
    story = sample(2)
    writer = Writer(tmp_path / "a.trace", Header)
    write_step(writer, story[0])
    for start in (0, 2):
        write_step(writer, Step(1, story[1].seen[start : start + 2], micro_batches=2), last=False)
    writer.abandon()
    return tmp_path / "a.trace"


def test_a_step_that_was_not_ended_is_kept_apart(cut_inside_a_step, opened):
    """Compared with a whole step it would look like a divergence."""
    trace = opened(cut_inside_a_step)

    assert [step.number for step in trace.steps] == [0]
    assert trace.unfinished is not None
    assert trace.unfinished.number == 1
    assert read_step(trace, 1).seen == sample(2)[1].seen[:4]


def test_the_next_step_ends_the_one_before(tmp_path, opened):
    writer = Writer(tmp_path / "a.trace", Header)
    for number in range(3):
        write_step(writer, Step(number, (Seen(call=number),)), last=False)
    writer.abandon()

    trace = opened(tmp_path / "a.trace")

    assert [step.number for step in trace.steps] == [0, 1]
    assert trace.unfinished is not None


@pytest.mark.parametrize("unfinished", [True, False])
def test_a_trace_closed_inside_a_step_says_so(tmp_path, opened, unfinished):
    writer = Writer(tmp_path / "a.trace", Header)
    write_step(writer, STORY[0])
    write_step(writer, STORY[1], last=not unfinished)
    writer.close(complete=False, reason="killed by a signal")

    trace = opened(tmp_path / "a.trace")

    assert len(trace.steps) == 1 + (not unfinished)
    assert (trace.unfinished is not None) == unfinished
    assert (trace.complete, trace.incomplete_reason) == (False, "killed by a signal")


@pytest.mark.slow
def test_finishing_a_cut_file_gives_it_an_index(tmp_path, opened):
    """Cut at any byte, the file is then opened by its index, and nothing of it is lost."""
    path = write(tmp_path / "a.trace", STORY)
    data = path.read_bytes()
    with contextlib.closing(open_file(path)) as source:
        _, header = framing.read_beginning(source)

    for cut in itertools.chain(range(header.end, len(data), 7), [len(data) - 1]):
        path.write_bytes(data[:cut])
        with open_trace(path) as before:
            told = [read_step(before, step.number) for step in before.steps]
            digest, notes = before.content_digest, before.not_observed

        assert finish_file(path, "the program was killed")
        assert not finish_file(path, "twice")
        with open_trace(path) as trace:
            assert [read_step(trace, step.number) for step in trace.steps] == told
            assert (trace.content_digest, trace.not_observed) == (digest, notes)
            assert trace.incomplete_reason == "the program was killed"
            assert not trace.complete


def test_finishing_keeps_the_unfinished_step_apart(cut_inside_a_step, opened):
    assert finish_file(cut_inside_a_step, "killed")

    trace = opened(cut_inside_a_step)

    assert [step.number for step in trace.steps] == [0]
    assert read_step(trace, 1).seen == sample(2)[1].seen[:4]


def test_finishing_leaves_sound_and_damaged_files_alone(tmp_path):
    sound = write(tmp_path / "a.trace", STORY)
    damaged = tmp_path / "b.trace"
    data = bytearray(sound.read_bytes()[:-20])
    with contextlib.closing(open_file(sound)) as source:
        chunk = next(each for each in framing.scan(source, 16) if each.kind == 2)
    data[chunk.end - 1] ^= 1
    damaged.write_bytes(data)
    before = sound.read_bytes(), damaged.read_bytes()

    assert not finish_file(sound, "no")
    assert not finish_file(damaged, "no")
    assert (sound.read_bytes(), damaged.read_bytes()) == before


def test_finishing_a_foreign_file_is_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("not a trace at all")

    with pytest.raises(TraceFormatError):
        finish_file(path, "no")
    assert path.read_text() == "not a trace at all"
