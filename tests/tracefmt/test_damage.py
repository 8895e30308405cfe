"""A flipped bit is detected, located and reported, and never misread."""

import contextlib
import random

import pytest
from trace_story import Seen, Step, read_step, sample, scalar, write, write_step

from traceparity.tracefmt import framing
from traceparity.tracefmt.errors import ChecksumError, ForeignFileError, TraceFormatError
from traceparity.tracefmt.framing import Gap, RecordKind
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Flag, Header, Kind, Phase
from traceparity.tracefmt.recovery import CUT_OFF
from traceparity.tracefmt.source import open_file
from traceparity.tracefmt.writer import Writer

SMALL = [
    Step(0, (Seen(value=b"12345678", external=True), scalar(0.1))),
    Step(1, (Seen(component="late"), scalar(0.2))),
]


def records(path):
    """The heads of a trace's records."""
    with contextlib.closing(open_file(path)) as source:
        found = list(framing.scan(source, framing.PREFIX_SIZE))
    assert not any(isinstance(each, Gap) for each in found)
    return found


def record_of(path, kind, number=0):
    return [head for head in records(path) if head.kind == kind][number]


def flip(path, at, mask=0x10):
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)
    return path


def unfinished(path, story):
    """A trace as a killed process leaves it."""
    writer = Writer(path, Header)
    for step in story:
        write_step(writer, step)
    writer.abandon()
    return path


def judge(path, story, header):
    """What a reader says of a damaged file: nothing that is not in the story."""
    try:
        trace = open_trace(path)
    except TraceFormatError:
        return "refused"
    with trace:
        assert trace.header == header
        damaged = set()
        for step in trace.steps:
            try:
                assert read_step(trace, step.number) == story[step.number]
            except TraceFormatError:
                damaged.add(step.number)
        if trace.complete:
            assert [step.number for step in trace.steps] == [step.number for step in story]
            return f"damaged steps {sorted(damaged)}" if damaged else "sound"
        return trace.incomplete_reason


@pytest.mark.slow
@pytest.mark.parametrize("finished", [True, False])
def test_no_flipped_bit_goes_unnoticed(tmp_path, finished):
    """Every byte is tried, each with one of its bits: no story differs, and none is sound."""
    path = tmp_path / "a.trace"
    write(path, SMALL) if finished else unfinished(path, SMALL)
    data, chance = path.read_bytes(), random.Random(0)
    with open_trace(path) as trace:
        header = trace.header
    sound = "sound" if finished else CUT_OFF
    assert judge(path, SMALL, header) == sound

    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)

        if judge(path, SMALL, header) == sound:
            # Of a file without footer only the bytes of tensors are not read when it is opened.
            value = record_of(tmp_path / "a.trace", RecordKind.VALUE)
            assert not finished, at
            assert value.offset + framing.HEAD_SIZE <= at < value.end


def test_a_damaged_step_is_named_and_the_others_are_read(tmp_path, opened):
    story = sample()
    path = write(tmp_path / "a.trace", story)
    damaged = record_of(path, RecordKind.CHUNK, 1)
    trace = opened(flip(path, damaged.offset + 50))

    message = rf"a\.trace: step 1: .* byte {damaged.offset} "
    with pytest.raises(ChecksumError, match=message) as caught:
        trace.columns(1)
    assert caught.value.offset == damaged.offset
    assert read_step(trace, 0) == story[0]
    assert read_step(trace, 2) == story[2]


def test_a_damaged_value_is_named_and_the_rest_is_read(tmp_path, opened):
    path = write(tmp_path / "a.trace", SMALL)
    damaged = record_of(path, RecordKind.VALUE)
    trace = opened(flip(path, damaged.end - 1))
    columns = trace.columns(0)

    with pytest.raises(ChecksumError, match=rf"a\.trace: .* byte {damaged.offset} "):
        trace.value(columns, 0)
    assert trace.scalar(columns, 1) == 0.1


@pytest.mark.parametrize("place", ["footer", "trailer"])
def test_a_damaged_index_is_rebuilt(tmp_path, opened, place):
    story = sample()
    path = write(tmp_path / "a.trace", story)
    digest = opened(path).content_digest
    footer = record_of(path, RecordKind.FOOTER)
    flip(path, footer.end - 1 if place == "footer" else footer.end + 1)

    trace = opened(path)

    assert [read_step(trace, step.number) for step in trace.steps] == list(story)
    assert trace.content_digest == digest
    assert not trace.complete
    assert trace.incomplete_reason.startswith("damaged: ")


def test_a_damaged_header_is_read_from_its_copy(tmp_path, opened):
    header = Header(program="train.py", versions={"torch": "2.12"})
    path = write(tmp_path / "a.trace", SMALL, header=header)
    flip(path, framing.PREFIX_SIZE + framing.HEAD_SIZE + 3)

    trace = opened(path)

    assert trace.header == header
    assert not trace.complete
    assert "the record at byte 16" in trace.incomplete_reason


def test_without_a_copy_a_damaged_header_is_an_error(tmp_path):
    """The header says how digests were made; without it nothing can be compared."""
    path = unfinished(tmp_path / "a.trace", SMALL)
    flip(path, framing.PREFIX_SIZE + framing.HEAD_SIZE + 3)

    with pytest.raises(ChecksumError, match=r"a\.trace: .* byte 16 "):
        open_trace(path)


def test_recovery_goes_on_after_damage(tmp_path, opened):
    """Step 2 needs no name from step 1, so it is found although step 1 is lost."""
    story = [Step(number, (Seen(call=number), scalar(number))) for number in range(4)]
    path = unfinished(tmp_path / "a.trace", story)
    damaged = record_of(path, RecordKind.CHUNK, 1)
    for at in (damaged.offset + 1, damaged.offset + 20, damaged.offset + 60):
        unfinished(tmp_path / f"{at}.trace", story)

        trace = opened(flip(tmp_path / f"{at}.trace", at))

        assert [step.number for step in trace.steps] == [0, 2, 3]
        assert all(read_step(trace, number) == story[number] for number in (0, 2, 3))
        assert trace.lost == (1,)
        assert [(each.offset, each.end) for each in trace.damage] == [(damaged.offset, damaged.end)]
        assert "lost steps: 1" in trace.incomplete_reason


def test_a_step_that_needs_lost_names_is_lost_too(tmp_path, opened):
    story = [Step(number, (Seen(component=f"part.{number}"),)) for number in range(3)]
    path = unfinished(tmp_path / "a.trace", story)
    flip(path, record_of(path, RecordKind.CHUNK, 1).end - 1)

    trace = opened(path)

    assert [step.number for step in trace.steps] == [0]
    assert len(trace.damage) == 2
    assert "needs names" in trace.damage[1].reason


@pytest.mark.parametrize("lost_part", [0, 1, 2])
def test_a_step_that_lost_a_part_is_lost(tmp_path, opened, lost_part):
    """Half a step would look like a run in which the other half did not happen."""
    story = [
        Step(number, tuple(Seen(call=call, microbatch=number) for call in range(3)))
        for number in range(3)
    ]
    path = tmp_path / "a.trace"
    writer = Writer(path, Header)
    for step in story:
        # As the recorder writes: the part until the update could be the last one.
        for call, seen in enumerate(step.seen):
            write_step(writer, Step(step.number, (seen,)), last=call > 0)
    writer.abandon()
    flip(path, record_of(path, RecordKind.CHUNK, 3 + lost_part).end - 1)

    trace = opened(path)

    assert [step.number for step in trace.steps] == [0, 2]
    assert trace.lost == (1,)


def test_a_gap_between_recorded_steps_is_no_damage(tmp_path, opened):
    """`--every 10` leaves steps out; a chunk says which step was written before it."""
    story = [Step(number, (Seen(call=number),)) for number in (0, 10, 20, 30)]
    path = unfinished(tmp_path / "a.trace", story)
    assert opened(path).incomplete_reason == CUT_OFF
    flip(path, record_of(path, RecordKind.CHUNK, 2).end - 1)

    trace = opened(path)

    assert [step.number for step in trace.steps] == [0, 10, 30]
    assert 20 in trace.lost


def test_a_trace_kept_inside_a_tensor_is_no_record(tmp_path, opened):
    """A reader that looks for the next record after damage must not find this one."""
    inner = unfinished(tmp_path / "inner.trace", SMALL).read_bytes()
    noise = random.Random(1).randbytes(2 * len(inner))
    seen = Seen(value=noise + inner[framing.PREFIX_SIZE :] + noise, external=True)
    path = unfinished(tmp_path / "a.trace", [Step(0, (seen,)), Step(1, (Seen(call=1),))])
    value = record_of(path, RecordKind.VALUE)
    assert framing.SYNC in path.read_bytes()[value.offset + framing.HEAD_SIZE : value.end]
    flip(path, value.offset + 9)

    trace = opened(path)

    assert [(each.offset, each.end) for each in trace.damage] == [(value.offset, value.end)]
    assert [step.number for step in trace.steps] == [0, 1]
    assert read_step(trace, 1).seen == (Seen(call=1),)


def test_text_mode_transfer_is_seen_at_once(tmp_path):
    path = write(tmp_path / "a.trace", SMALL)
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))

    with pytest.raises(ForeignFileError):
        open_trace(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04 a zip file", "not a trace"),
        (b"\x89", "ends inside a record; its first 0 bytes"),
        (framing.MAGIC, "ends inside a record"),
        (framing.prefix_bytes(), "ends inside a record"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, content, message):
    path = tmp_path / "a.trace"
    path.write_bytes(content)

    with pytest.raises(TraceFormatError, match=rf"a\.trace: .*{message}"):
        open_trace(path)


def test_bytes_after_the_end_are_reported(tmp_path, opened):
    story = sample()
    path = write(tmp_path / "a.trace", story)
    size = path.stat().st_size
    with path.open("ab") as stream:
        stream.write(b"\0" * 100)

    trace = opened(path)

    assert [read_step(trace, step.number) for step in trace.steps] == list(story)
    assert not trace.complete
    assert trace.damage[0].end == size + 100


def test_flags_of_newer_versions_are_kept(tmp_path, opened):
    step = Step(0, (Seen(flags=1 << 15 | Flag.STATEFUL, phase=Phase.STATE, kind=Kind.TENSOR),))

    assert read_step(opened(write(tmp_path / "a.trace", [step])), 0) == step
