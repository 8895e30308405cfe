"""Every damage is found, located and attributed to the steps that it costs."""

import contextlib
import random

import pytest
from hostile_trace import column, payloads, put, rewritten
from trace_story import Seen, Step, sample, scalar, write, write_step

from traceparity.tracefmt import framing
from traceparity.tracefmt.errors import (
    ForeignFileError,
    TraceError,
    TraceNotFoundError,
    VersionError,
)
from traceparity.tracefmt.framing import RecordKind
from traceparity.tracefmt.records import Header
from traceparity.tracefmt.source import open_file
from traceparity.tracefmt.verification import verify
from traceparity.tracefmt.writer import Writer

STORY = [
    Step(0, (Seen(value=b"12345678", external=True), scalar(0.1), scalar([1, 2], "ids"))),
    Step(1, (Seen(component="late"), scalar(0.2))),
    Step(2, (Seen(value=b"12345678", external=True), Seen(call=1))),
]


def records(path):
    with contextlib.closing(open_file(path)) as source:
        return list(framing.scan(source, framing.PREFIX_SIZE))


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


def test_a_sound_trace_is_sound(tmp_path):
    path = write(tmp_path / "a.trace", sample(), parts=3)

    verdict = verify(path)

    assert verdict.sound
    assert (verdict.steps, verdict.lost, verdict.damage) == (3, (), ())
    assert verdict.size == path.stat().st_size
    assert verdict.records == len(records(path))


@pytest.mark.slow
def test_every_damaged_byte_is_located(tmp_path):
    """Each byte is tried, with one of its bits; the damage that is reported contains it."""
    path, chance = write(tmp_path / "a.trace", STORY[:2]), random.Random(3)
    data = path.read_bytes()

    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        if at < framing.PREFIX_SIZE:
            with contextlib.suppress(ForeignFileError):
                assert verify(path).damage[0].end == framing.PREFIX_SIZE
            continue
        verdict = verify(path)

        assert not verdict.sound
        assert any(each.offset <= at < each.end for each in verdict.damage), at
        assert len(verdict.damage) == 1


@pytest.mark.parametrize(
    ("kind", "number", "lost"),
    [
        (RecordKind.CHUNK, 0, (0,)),
        (RecordKind.CHUNK, 1, (1,)),
        (RecordKind.VALUE, 0, (0, 2)),
        (RecordKind.HEADER, 0, ()),
        (RecordKind.FOOTER, 0, ()),
    ],
)
def test_damage_is_attributed_to_the_steps_that_it_costs(tmp_path, kind, number, lost):
    """A value that two steps share costs both."""
    path = write(tmp_path / "a.trace", STORY)
    head = [each for each in records(path) if each.kind == kind][number]
    flip(path, head.end - 1)

    verdict = verify(path)

    assert [(each.offset, each.end, each.steps) for each in verdict.damage] == [
        (head.offset, head.end, lost)
    ]
    assert verdict.lost == lost
    assert verdict.steps == 3 - len(lost)
    assert not verdict.sound


def test_a_cut_file_is_not_sound_and_says_where_it_ends(tmp_path):
    path = write(tmp_path / "a.trace", STORY)
    chunk = [each for each in records(path) if each.kind == RecordKind.CHUNK][2]
    path.write_bytes(path.read_bytes()[: chunk.end - 3])

    verdict = verify(path)

    assert not verdict.sound
    assert (verdict.steps, verdict.lost) == (2, ())
    assert [(each.offset, each.end) for each in verdict.damage] == [(chunk.offset, chunk.end - 3)]
    assert "cut off" in verdict.reason


def test_a_step_that_was_not_ended_is_told_apart(tmp_path):
    writer = Writer(tmp_path / "a.trace", Header)
    write_step(writer, STORY[0])
    write_step(writer, STORY[1], last=False)
    writer.abandon()

    verdict = verify(tmp_path / "a.trace")

    assert (verdict.steps, verdict.unfinished, verdict.lost) == (1, 1, ())
    assert not verdict.sound


def test_an_incomplete_recording_is_not_sound(tmp_path):
    writer = Writer(tmp_path / "a.trace", Header)
    write_step(writer, STORY[0])
    writer.close(complete=False, reason="killed")

    verdict = verify(tmp_path / "a.trace")

    assert (verdict.sound, verdict.damage, verdict.reason) == (False, (), "killed")


def test_an_unreadable_header_is_damage(tmp_path):
    path = write(tmp_path / "a.trace", STORY)
    path.write_bytes(path.read_bytes()[:-20])
    flip(path, 60)

    verdict = verify(path)

    assert not verdict.sound
    assert verdict.steps == 0
    assert verdict.damage[0].offset == 16


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (RecordKind.CHUNK, put("columns", "call", to=column("<u4", 2, 9)), "step 0 is not what"),
        (
            RecordKind.FOOTER,
            put("columns", "observations", to=column("<u4", 0, 9)),
            "step 0 is not what",
        ),
        (RecordKind.FOOTER, put("content_digest", to="0" * 32), "content digest"),
    ],
    ids=["chunk", "index", "digest"],
)
def test_an_index_that_lies_is_found_out(tmp_path, kind, change, message):
    """Checksums are sound here: only the content tells."""
    story = [Step(0, sample()[0].seen[:5]), Step(1, sample()[1].seen[:5])]
    sound = list(payloads(write(tmp_path / "model.trace", story)))
    path = tmp_path / "a.trace"
    path.write_bytes(rewritten(sound, kind, change))

    verdict = verify(path)

    assert not verdict.sound
    assert message in verdict.damage[0].reason


def test_a_plain_value_that_is_none_is_found_out(tmp_path):
    path = tmp_path / "model.trace"
    sound = list(payloads(write(path, [Step(0, (scalar([1, 2, 3]),))])))
    path.write_bytes(rewritten(sound, RecordKind.CHUNK, put("values", to=b"\xc1\1\2\3")))

    verdict = verify(path)

    assert verdict.lost == (0,)
    assert "plain value" in verdict.damage[0].reason


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, TraceNotFoundError),
        (b"", ForeignFileError),
        (b"PK", ForeignFileError),
        (framing.prefix_bytes((2, 0)), VersionError),
    ],
)
def test_what_is_no_trace_is_an_error(tmp_path, content, error):
    path = tmp_path / "a.trace"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(error):
        verify(path)


def test_a_folder_is_no_trace(tmp_path):
    with pytest.raises(TraceError):
        verify(tmp_path)
