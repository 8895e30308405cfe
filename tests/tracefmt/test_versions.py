"""A newer minor version is readable, a newer major version is a clear error."""

import contextlib
import struct

import msgpack
import pytest
import xxhash
from hostile_trace import finished, pack, payloads, trace_of
from trace_story import read_step, sample, write

from traceparity.tracefmt import framing
from traceparity.tracefmt.errors import ChecksumError, VersionError
from traceparity.tracefmt.framing import RecordKind
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.source import open_file

NEW = {"new_list": [1, [2, {"a": [3] * 100}]], "new_map": {"deep": {"er": b"x"}}}


def newer(payload):
    """A payload as a later version may write it: with fields that we do not know."""
    payload = {"new_number": 1, **payload, **NEW, "new_time": msgpack.Timestamp(5)}
    if "columns" in payload:
        payload["columns"] = {"curvature": b"12345", **payload["columns"], "list": [1, 2]}
    if "tables" in payload:
        payload["tables"] = {**payload["tables"], "authors": b"names"}
    return payload


@pytest.fixture
def newer_trace(tmp_path):
    """A trace of version 1.9, with unknown records, fields, columns and reserved bits."""
    story = sample(2)
    story = [type(step)(step.number, step.seen[:5]) for step in story]
    found = list(payloads(write(tmp_path / "model.trace", story)))
    header = msgpack.packb({**NEW, **_header(tmp_path / "model.trace")})
    data = framing.prefix_bytes((1, 9))
    data += pack(RecordKind.HEADER, header, len(data))
    places = []
    for _, payload in found[:-1]:
        data += pack(77, b"a kind of record that we do not know", len(data))
        record = pack(RecordKind.CHUNK, msgpack.packb(newer(payload)), len(data))
        places.append((len(data), len(record)))
        data += record
    footer = newer(found[-1][1])
    footer["chunk_offset"] = b"".join(at.to_bytes(8, "little") for at, _ in places)
    footer["chunk_length"] = b"".join(size.to_bytes(4, "little") for _, size in places)
    return story, data, footer


def _header(path):
    with contextlib.closing(open_file(path)) as source:
        _, head = framing.read_beginning(source)
        return msgpack.unpackb(framing.read_payload(source, head))


@pytest.mark.parametrize("cut", [False, True])
def test_a_newer_minor_version_is_read(tmp_path, opened, newer_trace, cut):
    story, data, footer = newer_trace
    path = tmp_path / "a.trace"
    path.write_bytes(data if cut else finished(data, footer))

    trace = opened(path)

    assert trace.header.format_version == (1, 9)
    assert trace.header.program == "train.py"
    assert trace.complete is not cut
    assert trace.damage == ()
    assert [read_step(trace, step.number).seen for step in trace.steps] == [
        step.seen for step in story
    ]


@pytest.mark.parametrize("version", [(2, 0), (0, 1), (65535, 65535)])
def test_another_major_version_is_a_clear_error(tmp_path, version):
    path = tmp_path / "a.trace"
    path.write_bytes(framing.prefix_bytes(version) + b"whatever comes in that version")

    message = rf"a\.trace: .*format version {version[0]}\.{version[1]}, .* reads 1\.x; upgrade"
    with pytest.raises(VersionError, match=message):
        open_trace(path)


def test_a_damaged_version_is_no_version(tmp_path):
    path = tmp_path / "a.trace"
    data = bytearray(trace_of([]))
    data[8] = 2
    path.write_bytes(data)

    with pytest.raises(ChecksumError):
        open_trace(path)


def test_reserved_bits_are_protected_but_not_judged(tmp_path, opened):
    """A later minor version may give them a meaning."""
    data = bytearray(trace_of([(77, b"unknown")]))
    at = data.rindex(framing.SYNC)
    data[at + 6 : at + 8] = b"\x01\x02"
    data[at + 24 : at + 32] = struct.pack("<Q", xxhash.xxh3_64_intdigest(data[at : at + 24], at))
    path = tmp_path / "a.trace"
    path.write_bytes(data)

    assert opened(path).damage == ()


def test_the_version_of_a_written_file_is_in_its_prefix_only(tmp_path, opened):
    path = write(tmp_path / "a.trace", sample(1))

    assert path.read_bytes()[8:12] == b"\x01\x00\x01\x00"
    assert "format_version" not in _header(path)
    assert opened(path).header.format_version == (1, 1)
