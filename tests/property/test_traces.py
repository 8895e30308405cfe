"""What holds for every trace."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from trace_stories import STORIES
from trace_story import Step, read_step, write, write_step

from traceparity.tracefmt import framing
from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.reader import Trace, open_trace
from traceparity.tracefmt.records import Header
from traceparity.tracefmt.recovery import finish_file
from traceparity.tracefmt.writer import Writer

AS_LONG_AS_IT_TAKES = settings(deadline=None, max_examples=60)


def written(folder: str, story: list[Step], *, parts: int = 1, close: bool = True) -> Path:
    path = Path(folder) / f"{parts}{close}.trace"
    if close:
        return write(path, story, parts=parts)
    writer = Writer(path, Header)
    writer.open()
    for step in story:
        write_step(writer, step, parts=parts)
    writer.abandon()
    return path


def told(trace: Trace) -> list[Step]:
    return [read_step(trace, step.number) for step in trace.steps]


@AS_LONG_AS_IT_TAKES
@given(STORIES, st.integers(1, 4), st.booleans())
def test_what_was_written_is_what_is_read(story, parts, close):
    with (
        tempfile.TemporaryDirectory() as folder,
        open_trace(written(folder, story, parts=parts, close=close)) as trace,
    ):
        assert told(trace) == story
        assert trace.complete is close
        assert trace.damage == ()


@AS_LONG_AS_IT_TAKES
@given(STORIES, st.integers(2, 5))
def test_neither_chunks_nor_a_footer_change_the_digests(story, parts):
    """The index of a finished file and the one rebuilt from its chunks are the same."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_trace(written(folder, story)) as whole,
        open_trace(written(folder, story, parts=parts)) as split,
        open_trace(written(folder, story, parts=parts, close=False)) as cut,
    ):
        for other in (split, cut):
            assert other.content_digest == whole.content_digest
            assert [(step.phase_digests, step.observations) for step in other.steps] == [
                (step.phase_digests, step.observations) for step in whole.steps
            ]


@AS_LONG_AS_IT_TAKES
@given(STORIES, st.data())
def test_ids_do_not_count(story, data):
    """Two writers that meet the names in another order agree on every digest."""
    names = [seen for step in story for seen in step.seen]
    shuffled = data.draw(st.permutations(names))
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(Path(folder) / "b.trace", Header)
        for seen in shuffled:
            writer.string(seen.device)
            writer.shape(seen.shape)
            writer.site(seen.phase, seen.component, seen.field, seen.location)
        for step in story:
            write_step(writer, step)
        writer.close()
        with open_trace(written(folder, story)) as one, open_trace(writer.path) as other:
            assert told(other) == story
            assert one.content_digest == other.content_digest


@AS_LONG_AS_IT_TAKES
@given(STORIES, st.integers(1, 3), st.data())
def test_a_cut_trace_gives_every_whole_step_before_the_cut(story, parts, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.trace"
        writer, ends = Writer(path, Header), []
        start = (writer.open(), writer.bytes_written)[1]
        for step in story:
            write_step(writer, step, parts=parts)
            ends.append(writer.bytes_written)
        writer.close()
        size = path.stat().st_size
        cut = data.draw(st.integers(start, size - 1) | st.sampled_from([start, *ends]))
        with open(path, "r+b") as stream:
            stream.truncate(cut)
        whole = story[: sum(end <= cut for end in ends)]

        with open_trace(path) as trace:
            assert told(trace) == whole
            assert not trace.complete
            digest = trace.content_digest
        assert finish_file(path, "cut")
        with open_trace(path) as trace:
            assert told(trace) == whole
            assert trace.content_digest == digest


@AS_LONG_AS_IT_TAKES
@given(STORIES, st.booleans(), st.data())
def test_a_flipped_bit_is_never_misread(story, close, data):
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, story, close=close)
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)

        try:
            trace = open_trace(path)
        except TraceFormatError:
            return
        with trace:
            wanted = {step.number: step for step in story}
            lost = set(wanted) - {step.number for step in trace.steps}
            assert not (lost and trace.complete)
            for step in trace.steps:
                try:
                    found = read_step(trace, step.number)
                except TraceFormatError:
                    lost.add(step.number)
                else:
                    assert found == wanted[step.number]
            if close:
                assert lost or not trace.complete


@AS_LONG_AS_IT_TAKES
@given(st.binary(max_size=200), st.booleans())
def test_what_follows_a_header_may_be_anything(noise, looks_like_a_record):
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, [], close=False)
        with path.open("ab") as stream:
            stream.write(framing.SYNC * looks_like_a_record + noise)

        with open_trace(path) as trace:
            assert len(trace.steps) == 0
            assert not trace.complete
