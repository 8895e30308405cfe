"""Equal observations have equal digests, whatever the file looks like, and unequal ones do not."""

import dataclasses

import pytest
from trace_story import Seen, Step, sample, scalar, write, write_step

from traceparity.tracefmt.records import Flag, Header, Kind, Phase
from traceparity.tracefmt.rows import scalar_bytes, scalar_digest
from traceparity.tracefmt.writer import Writer


def test_chunks_do_not_count(tmp_path, opened):
    story = sample()

    traces = [opened(write(tmp_path / f"{parts}.trace", story, parts=parts)) for parts in (1, 3, 8)]

    assert len({trace.content_digest for trace in traces}) == 1
    assert len({tuple(step.phase_digests for step in trace.steps) for trace in traces}) == 1
    assert len({tuple(step.observations for step in trace.steps) for trace in traces}) == 1


def test_the_order_of_interning_does_not_count(tmp_path, opened):
    story = sample()
    writer = Writer(tmp_path / "b.trace", Header)
    for name in ("zebra", "block.2", "cpu"):
        writer.string(name)
    writer.shape((9, 9))
    for seen in reversed(story[2].seen):
        writer.site(seen.phase, seen.component, seen.field)
    for step in story:
        write_step(writer, step)
    writer.close()

    ours = opened(write(tmp_path / "a.trace", story))
    theirs = opened(tmp_path / "b.trace")

    assert ours.columns(0).site.tolist() != theirs.columns(0).site.tolist()
    assert ours.content_digest == theirs.content_digest
    assert [step.phase_digests for step in ours.steps] == [
        step.phase_digests for step in theirs.steps
    ]


def test_context_does_not_count_but_is_counted(tmp_path, opened):
    plain = Step(0, (Seen(),))
    more = Step(0, (Seen(phase=Phase.STATE, flags=Flag.CONTEXT), Seen()))

    traces = [
        opened(write(tmp_path / f"{number}.trace", [step]))
        for number, step in enumerate((plain, more))
    ]

    assert traces[0].content_digest == traces[1].content_digest
    assert traces[1].steps[0].observations[Phase.STATE] == 1
    assert traces[1].steps[0].phase_digests[Phase.STATE] == bytes(16)


BASE = Seen()


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(BASE, digest=bytes(16)),
        dataclasses.replace(BASE, call=1),
        dataclasses.replace(BASE, microbatch=1),
        dataclasses.replace(BASE, component="other"),
        dataclasses.replace(BASE, field="output[1]"),
        dataclasses.replace(BASE, phase=Phase.BACKWARD),
        dataclasses.replace(BASE, flags=Flag.CONTEXT),
    ],
)
def test_what_decides_counts(tmp_path, other, opened):
    ours = opened(write(tmp_path / "a.trace", [Step(0, (BASE,))]))
    theirs = opened(write(tmp_path / "b.trace", [Step(0, (other,))]))

    assert ours.content_digest != theirs.content_digest


def test_order_and_step_numbers_count(tmp_path, opened):
    seen = (Seen(), Seen(component="other"))
    stories = [[Step(0, seen)], [Step(0, seen[::-1])], [Step(1, seen)]]

    digests = {
        opened(write(tmp_path / f"{number}.trace", story)).content_digest
        for number, story in enumerate(stories)
    }

    assert len(digests) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ((1, 2), [1, 2]),
        (float("nan"), -float("nan")),
        ([float("nan")], [float("inf") - float("inf")]),
    ],
)
def test_equal_plain_values_have_equal_digests(one, other):
    assert scalar_digest(scalar_bytes(one)) == scalar_digest(scalar_bytes(other))


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ([], {})])
def test_plain_values_of_different_kinds_differ(one, other):
    assert scalar_digest(scalar_bytes(one)) != scalar_digest(scalar_bytes(other))


def test_a_marker_and_a_scalar_of_one_value_share_their_digest(tmp_path, opened):
    """The kind of a row follows from its site; the value alone is digested."""
    steps = [
        Step(0, (scalar(1),)),
        Step(0, (scalar(1, kind=Kind.MARKER),)),
    ]
    digests = {
        opened(write(tmp_path / f"{number}.trace", [step])).content_digest
        for number, step in enumerate(steps)
    }

    assert len(digests) == 1
