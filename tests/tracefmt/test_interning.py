"""Names are written once, and ids mean the same wherever they are used."""

import pytest
from trace_story import Seen, Step, read_step, sample, write, write_step

from traceparity.tracefmt import limits
from traceparity.tracefmt.errors import TraceLimitError
from traceparity.tracefmt.records import Header, NotObserved, Phase, Site
from traceparity.tracefmt.rows import Rows
from traceparity.tracefmt.tables import Interner
from traceparity.tracefmt.writer import Writer

LONG = "a.very.long.component.that.would.be.seen.in.a.file." * 20


def test_equal_names_have_one_id():
    names = Interner()

    assert names.string("a") == names.string("a") == 1
    assert names.string("") == 0
    assert names.shape(()) == 0
    assert names.shape((2, 3)) == names.shape((2, 3)) == 1
    site = names.site(Phase.DATA, "a", "b", "here")
    assert names.site(Phase.DATA, "a", "b", "there") == site
    assert names.site(Phase.LOSS, "a", "b", "") != site
    assert names.lengths == (4, 2, 2, 0)


def test_the_location_of_a_site_is_the_first_one(tmp_path, opened):
    writer, rows = Writer(tmp_path / "a.trace", Header), Rows()
    for location in ("here", "there"):
        site = writer.site(Phase.DATA, "a", "b", location)
        rows.tensor(site, 0, 0, 0, 0, 0, 0, bytes(16))
    writer.write(0, rows)
    writer.close()

    assert [entry.location for entry in opened(tmp_path / "a.trace").sites] == ["here"]


def test_a_name_is_in_the_file_once_and_in_the_index_once(tmp_path):
    size = {}
    for steps in (1, 50):
        story = [Step(number, (Seen(component=LONG),)) for number in range(steps)]
        size[steps] = write(tmp_path / f"{steps}.trace", story).stat().st_size

    assert size[50] - size[1] < 49 * 700


def test_a_name_travels_with_the_chunk_that_first_uses_it(tmp_path, opened):
    """So any prefix of a file is readable."""
    story = [Step(number, (Seen(component=f"new.{number}"),)) for number in range(3)]
    writer = Writer(tmp_path / "a.trace", Header)
    for step in story:
        write_step(writer, step)
        trace = opened(tmp_path / "a.trace")

        assert [entry.site.component for entry in trace.sites] == [
            f"new.{number}" for number in range(step.number + 1)
        ]
        assert read_step(trace, step.number) == step
    writer.close()


def test_ids_beyond_16_bits_work(tmp_path, opened):
    """A model may have more names than that before a dtype is first seen."""
    writer, rows = Writer(tmp_path / "a.trace", Header), Rows()
    for number in range(70_000):
        writer.string(f"name {number}")
    site = writer.site(Phase.FORWARD, "late", "output[0]")
    rows.tensor(site, 0, 0, 0, writer.string("float8_e5m2"), writer.string("cuda:9"), 0, bytes(16))
    writer.write(0, rows)
    writer.close()

    seen = read_step(opened(tmp_path / "a.trace"), 0).seen[0]

    assert (seen.component, seen.dtype, seen.device) == ("late", "float8_e5m2", "cuda:9")


@pytest.mark.parametrize(
    ("limit", "value"),
    [("MAX_STRINGS", 4), ("MAX_STRING_BYTES", 20), ("MAX_SITES", 2), ("MAX_SHAPES", 2)],
)
def test_a_full_table_refuses_and_changes_nothing(tmp_path, monkeypatch, limit, value, opened):
    monkeypatch.setattr(limits, limit, value)
    writer, rows = Writer(tmp_path / "a.trace", Header), Rows()
    said: list[tuple[str, tuple[int, ...]]] = []

    def say_everything() -> None:
        for number in range(100):
            shape = writer.shape((number,) * number)
            site = writer.site(Phase.LOSS, f"part {number}", "value")
            rows.tensor(site, 0, 0, 0, 0, 0, shape, bytes(16))
            said.append((f"part {number}", (number,) * number))

    with pytest.raises(TraceLimitError, match="no room"):
        say_everything()
    writer.write(0, rows)
    writer.close()

    trace = opened(tmp_path / "a.trace")
    assert [(seen.component, seen.shape) for seen in read_step(trace, 0).seen] == said


def test_notes_have_a_limit_too(monkeypatch):
    monkeypatch.setattr(limits, "MAX_NOTES", 1)
    names = Interner()
    names.note(NotObserved("a", "b"))
    names.note(NotObserved("a", "b"))

    with pytest.raises(TraceLimitError):
        names.note(NotObserved("c", "d"))


def test_a_shape_of_too_many_dimensions_is_refused():
    with pytest.raises(TraceLimitError):
        Interner().shape((1,) * 65)


def test_a_site_is_written_as_phase_component_field():
    assert str(Site(Phase.FORWARD, "blocks.3", "output[0]")) == "forward:blocks.3:output[0]"


def test_names_in_any_script_come_back(tmp_path, opened):
    step = Step(0, (Seen(component="层.1", field="выход", location="café.py:3"),))

    trace = opened(write(tmp_path / "a.trace", [*sample(1), Step(1, step.seen)]))

    assert read_step(trace, 1).seen == step.seen


def test_a_name_that_utf_8_cannot_hold_is_escaped(tmp_path, opened):
    story = [Step(0, (Seen(component="a\udc80b"),)), Step(1, (Seen(component="next"),))]

    trace = opened(write(tmp_path / "a.trace", story))

    assert [entry.site.component for entry in trace.sites] == ["a\\udc80b", "next"]
