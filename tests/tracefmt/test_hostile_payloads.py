"""Chunks and footers that say what is not so raise `TraceFormatError`, and never another error."""

import itertools
from typing import Any

import pytest
from hostile_trace import (
    DELETE,
    chunks_at,
    column,
    payloads,
    put,
    rewritten,
    use_all,
)
from trace_story import Step, sample, write

from traceparity.tracefmt.framing import RecordKind
from traceparity.tracefmt.reader import open_trace


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Payloads of a sound trace, by kind."""
    story = [Step(0, sample()[0].seen[:5]), Step(1, sample()[1].seen[:5])]
    path = write(tmp_path_factory.mktemp("sound") / "a.trace", story)
    return list(payloads(path))


def test_the_rewriting_alone_changes_nothing(tmp_path, sound):
    """Otherwise the tests below would prove nothing."""
    path = tmp_path / "a.trace"
    for kind in (RecordKind.CHUNK, RecordKind.FOOTER):
        path.write_bytes(rewritten(sound, kind, lambda payload: None))

        assert use_all(path) == "ok"


WRONG_TYPES = [None, -1, 1.5, "text", [1, 2, 3], {"a": 1}, True, b"\0", 1 << 63, [[]] * 9]
CHUNK_FIELDS = [
    ("step",), ("part",), ("previous_step",), ("previous_parts",), ("last",), ("tail",),
    ("micro_batches",), ("parameters_digest",), ("rows",), ("columns",), ("tables",),
    ("sketches",), ("values",), ("columns", "site"), ("columns", "digest"), ("columns", "stats"),
    ("columns", "value_offset"), ("tables", "base"), ("tables", "strings"),
    ("tables", "string_lengths"), ("tables", "shape_ranks"), ("tables", "shape_sizes"),
    ("tables", "site_phase"), ("tables", "site_component"), ("tables", "note_reason"),
]  # fmt: skip
FOOTER_FIELDS = [
    ("steps",), ("complete",), ("reason",), ("content_digest",), ("header",), ("columns",),
    ("chunk_offset",), ("chunk_length",), ("tables",), ("columns", "number"),
    ("columns", "tail"), ("columns", "chunks"), ("columns", "observations"),
    ("columns", "phase_digests"), ("tables", "base"), ("tables", "strings"),
    ("tables", "site_field"),
]  # fmt: skip


def agrees(field: tuple[str, ...], value: Any) -> bool:
    """Whether a value is of the right type after all, so that it may be believed."""
    naturals = {"step", "part", "previous_step", "previous_parts", "micro_batches", "rows", "steps"}
    if field[-1] in naturals:
        return type(value) is int and value >= 0
    if field[-1] in {"last", "tail", "complete"} and len(field) == 1:
        return type(value) is bool
    if field[-1] in {"reason", "content_digest"}:
        return type(value) is str
    if field[-1] == "header":
        return type(value) is bytes
    return False


@pytest.mark.parametrize("field", CHUNK_FIELDS, ids=".".join)
def test_wrong_types_in_a_chunk_are_damage(tmp_path, sound, field):
    for number, wrong in enumerate([*WRONG_TYPES, DELETE]):
        change = put(*field, to=wrong)
        finished, cut = tmp_path / f"f{number}.trace", tmp_path / f"c{number}.trace"
        data = rewritten(sound, RecordKind.CHUNK, change)
        finished.write_bytes(data)
        cut.write_bytes(data[:-17])

        told = [use_all(finished), use_all(cut)]

        if not agrees(field, wrong) and field[0] != "tables":
            assert "damaged" in told[0], (wrong, told)
        if not agrees(field, wrong):
            assert "damaged" in told[1], (wrong, told)


@pytest.mark.parametrize("field", FOOTER_FIELDS, ids=".".join)
def test_wrong_types_in_the_footer_cost_only_the_index(tmp_path, sound, field):
    for number, wrong in enumerate([*WRONG_TYPES, DELETE]):
        path = tmp_path / f"{number}.trace"
        path.write_bytes(rewritten(sound, RecordKind.FOOTER, put(*field, to=wrong)))

        told = use_all(path)

        if field[-1] == "strings" and wrong is DELETE:
            # Tables without strings are those of a chunk that brings no names.
            assert "points outside its tables" in told
        elif not agrees(field, wrong):
            assert "the index was rebuilt" in told, (wrong, told)
        with open_trace(path) as trace:
            assert len(trace.steps) == 2


@pytest.mark.parametrize(
    "change",
    [
        put("columns", "site", to=column("<u4", 0, 99)),
        put("columns", "site", to=column("<u4", 1, 0xFFFFFFFF)),
        put("columns", "dtype", to=column("<u4", 0, 9999)),
        put("columns", "device", to=column("<u4", 0, 0xFFFFFFFF)),
        put("columns", "shape", to=column("<u4", 0, 9999)),
        put("columns", "kind", to=column("u1", 0, 4)),
        put("columns", "sketch_row", to=column("<i4", 2, 7)),
        put("columns", "sketch_row", to=column("<i4", 2, -2)),
        put("columns", "value_offset", to=column("<i8", 0, 1 << 62)),
        put("columns", "value_offset", to=column("<i8", 0, -(1 << 63))),
        put("columns", "value_length", to=column("<u8", 0, (1 << 64) - 1)),
        put("columns", "value_length", to=column("<u8", 0, 1 << 40)),
        put("columns", "site", to=lambda data: data[:-1]),
        put("columns", "site", to=lambda data: data[:-4]),
        put("columns", "digest", to=lambda data: data + data),
        put("sketches", to=lambda data: data[:-4]),
        put("sketches", to=b""),
        put("values", to=b""),
        put("rows", to=1 << 40),
        put("rows", to=3),
        put("parameters_digest", to=bytes(15)),
    ],
    ids=map(str, itertools.count()),
)
def test_columns_that_point_outside_are_damage(tmp_path, sound, change):
    path = tmp_path / "a.trace"
    path.write_bytes(rewritten(sound, RecordKind.CHUNK, change))

    assert "damaged" in use_all(path)
    path.write_bytes(path.read_bytes()[:-17])
    assert "damaged" in use_all(path)


@pytest.mark.parametrize(
    "change",
    [
        put("tables", "strings", to=b"\xff" * 200),
        put("tables", "strings", to=lambda data: data[:-1]),
        put("tables", "string_lengths", to=column("<u4", 0, 0xFFFFFFFF)),
        put("tables", "string_lengths", to=lambda data: data + b"\xff\xff\xff\x7f" * 100),
        put("tables", "shape_ranks", to=b"\xff" * 3),
        put("tables", "shape_ranks", to=bytes(1 << 20)),
        put("tables", "shape_sizes", to=column("<u8", 0, 1 << 63)),
        put("tables", "shape_sizes", to=lambda data: data[:-8]),
        put("tables", "site_phase", to=column("u1", 0, 8)),
        put("tables", "site_component", to=column("<u4", 0, 1 << 20)),
        put("tables", "site_location", to=lambda data: data[:-4]),
        put("tables", "note_component", to=bytes(4)),
        put("tables", "base", to=bytes(16)),
        put("tables", "base", to=b"\xff" * 16),
    ],
    ids=map(str, itertools.count()),
)
@pytest.mark.parametrize("kind", [RecordKind.CHUNK, RecordKind.FOOTER])
def test_tables_that_do_not_fit_together_are_damage(tmp_path, sound, change, kind):
    path = tmp_path / "a.trace"
    data = rewritten(sound, kind, change)
    path.write_bytes(data if kind == RecordKind.FOOTER else data[:-17])

    assert "damaged" in use_all(path)


@pytest.mark.parametrize(
    "change",
    [
        put("columns", "number", to=column("<u8", 1, 0)),
        put("columns", "number", to=column("<u8", 0, 5)),
        put("columns", "number", to=column("<u8", 1, (1 << 64) - 1)),
        put("columns", "tail", to=column("u1", 1, 2)),
        put("columns", "whole", to=column("u1", 0, 0)),
        put("columns", "chunks", to=column("<u4", 0, 0)),
        put("columns", "chunks", to=column("<u4", 0, 0xFFFFFFFF)),
        put("columns", "phase_digests", to=lambda data: data[:-1]),
        put("steps", to=1),
        put("steps", to=1 << 60),
        chunks_at((100, 50), (100, 50)),
        chunks_at((100, 80), (150, 80)),
        chunks_at((300, 50), (100, 50)),
        chunks_at((0, 50), (100, 50)),
        chunks_at((100, 50), ((1 << 64) - 1, 50)),
        chunks_at((100, 50), (1 << 62, 50)),
        chunks_at((100, 50), (200, 0xFFFFFFFF)),
    ],
    ids=map(str, itertools.count()),
)
def test_an_index_that_is_out_of_order_is_rebuilt(tmp_path, sound, change):
    path = tmp_path / "a.trace"
    path.write_bytes(rewritten(sound, RecordKind.FOOTER, change))

    assert "the index was rebuilt" in use_all(path)


def test_an_index_that_points_to_other_records_is_found_out(tmp_path, sound):
    path = tmp_path / "a.trace"
    path.write_bytes(rewritten(sound, RecordKind.FOOTER, chunks_at((60, 50), (200, 50))))

    assert "no such chunk lies at byte" in use_all(path) or "checksum" in use_all(path)
