"""Records, headers and values of hostile files, and what they may cost in time and memory."""

import itertools
import resource
import struct
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
import zstandard
from hostile_trace import DELETE, pack, payloads, put, raw_head, rewritten, trace_of, use_all
from trace_story import Seen, Step, sample, write

from traceparity.tracefmt import framing, limits
from traceparity.tracefmt.codec import pack_header
from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.framing import RecordKind
from traceparity.tracefmt.plain import decode_plain
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Header

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Payloads of a sound trace, by kind."""
    story = [Step(0, sample()[0].seen[:5]), Step(1, sample()[1].seen[:5])]
    path = write(tmp_path_factory.mktemp("sound") / "a.trace", story)
    return list(payloads(path))


@pytest.mark.parametrize("offset", [0, 15, 17, 1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1])
def test_a_trailer_may_point_anywhere(tmp_path, sound, offset):
    path = tmp_path / "a.trace"
    data = rewritten(sound, RecordKind.FOOTER, lambda payload: None)
    path.write_bytes(data[:-16] + framing.trailer_bytes(offset))

    assert use_all(path).startswith("damaged: ")


@pytest.mark.parametrize("kind", list(RecordKind))
@pytest.mark.parametrize("length", [1 << 29, 0xFFFFFFFF])
def test_huge_lengths_are_refused_before_anything_is_allocated(tmp_path, kind, length):
    data = trace_of([])
    data += raw_head(kind, 0, length, length, b"", len(data))
    path = tmp_path / "a.trace"
    path.write_bytes(data + bytes(100))

    with open_trace(path) as trace:
        assert len(trace.steps) == 0
        assert f"claims {length} bytes" in trace.incomplete_reason


@pytest.mark.parametrize(
    "stored",
    [
        zstandard.ZstdCompressor().compress(bytes(1 << 20)),
        zstandard.ZstdCompressor().compress(b"other")[:-3],
        zstandard.ZstdCompressor(write_content_size=False).compress(bytes(99)),
        zstandard.ZstdCompressor().compress(b"x" * 100) * 2,
        b"no zstd frame at all",
        b"",
    ],
    ids=map(str, itertools.count()),
)
def test_a_frame_that_misstates_its_size_is_damage(tmp_path, stored):
    data = trace_of([])
    data += raw_head(RecordKind.CHUNK, 1, len(stored), 100, stored, len(data)) + stored
    path = tmp_path / "a.trace"
    path.write_bytes(data)

    assert use_all(path).startswith("damaged: the record at byte")


def test_an_unknown_codec_is_damage(tmp_path):
    data = trace_of([])
    data += raw_head(RecordKind.CHUNK, 9, 3, 3, b"abc", len(data)) + b"abc"
    path = tmp_path / "a.trace"
    path.write_bytes(data)

    assert "unknown codec" in use_all(path)


DEEP = b"\x81\xa1a" * 5000 + b"\xc0"
NESTED_ARRAYS = b"\x91" * 100_000 + b"\xc0"
CLAIMING_ARRAYS = b"\xdd\x7f\xff\xff\xff" * 400
NOT_A_MAP = [
    b"",
    b"\xc0",
    b"\x93\x01\x02\x03",
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
    b"\x81\x01\x01",
    b"\x81\xa1a",
]


@pytest.mark.parametrize(
    "payload",
    [DEEP, NESTED_ARRAYS, CLAIMING_ARRAYS, *NOT_A_MAP],
    ids=map(str, itertools.count()),
)
def test_msgpack_that_is_no_payload_is_damage(tmp_path, payload):
    path = tmp_path / "a.trace"
    path.write_bytes(trace_of([(RecordKind.CHUNK, payload)]))
    assert use_all(path).startswith("damaged: ")

    path.write_bytes(trace_of([], footer=payload))
    assert use_all(path).startswith("damaged: ")

    header = framing.prefix_bytes() + pack(RecordKind.HEADER, payload, 16)
    path.write_bytes(header)
    with pytest.raises(TraceFormatError):
        open_trace(path)


@pytest.mark.parametrize(
    "change",
    [
        put("arguments", to=[1]), put("arguments", to="no list"), put("rank", to="0"),
        put("rank", to=True), put("program", to=None), put("versions", to=[]),
        put("session", to=DELETE),
    ],
    ids=map(str, itertools.count()),
)  # fmt: skip
def test_a_header_with_wrong_types_is_refused(tmp_path, change):
    header = msgpack.unpackb(pack_header(Header()))
    change(header)
    path = tmp_path / "a.trace"
    path.write_bytes(framing.prefix_bytes() + pack(RecordKind.HEADER, msgpack.packb(header), 16))

    with pytest.raises(TraceFormatError, match="header is damaged"):
        open_trace(path)


def test_the_first_record_must_be_the_header(tmp_path):
    path = tmp_path / "a.trace"
    path.write_bytes(framing.prefix_bytes() + pack(RecordKind.VALUE, b"x", 16))

    with pytest.raises(TraceFormatError, match="no header"):
        open_trace(path)


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\x93\x01",
        b"\x01\x01",
        NESTED_ARRAYS,
        CLAIMING_ARRAYS,
        b"\x81\x01\x02",
        b"\x81\x90\x02",
        b"\xa1\xff",
        msgpack.packb(msgpack.Timestamp(1)),
        msgpack.packb([msgpack.ExtType(5, b"x")]),
        msgpack.packb({"a": msgpack.ExtType(5, b"x")}),
        msgpack.packb([[]] * 70_000),
        b"\xc6" + struct.pack(">I", limits.MAX_PLAIN) + bytes(limits.MAX_PLAIN),
    ],
    ids=map(str, itertools.count()),
)
def test_what_is_no_plain_value_is_refused(encoded):
    with pytest.raises(TraceFormatError):
        decode_plain(encoded)


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 4), (5, 4), (1 << 40, 4), ((1 << 63) - 1, 4), (-1, 4), (16, 10), (16, 1 << 29)],
)
def test_external_values_may_point_anywhere(tmp_path, offset, length):
    data = trace_of([])
    value_at, data = len(data), data + pack(RecordKind.VALUE, b"1234", len(data))
    path = tmp_path / "a.trace"
    write(tmp_path / "model.trace", [Step(0, (Seen(value=b"1234", external=True),))])
    payload = next(payload for _, payload in payloads(tmp_path / "model.trace"))
    offset = value_at if (offset, length) == (16, 10) else offset
    payload["columns"]["value_offset"] = struct.pack("<q", offset)
    payload["columns"]["value_length"] = struct.pack("<Q", length)
    path.write_bytes(data + pack(RecordKind.CHUNK, msgpack.packb(payload), len(data)))

    told = use_all(path)

    assert any(part in told for part in ("no value record", "points outside", "does not match"))


def test_steps_out_of_order_without_an_index_are_damage(tmp_path, sound):
    first, second = (payload for head, payload in sound if head.kind == RecordKind.CHUNK)
    for records in ([second], [first, second, first], [first, first]):
        path = tmp_path / "a.trace"
        path.write_bytes(trace_of([(RecordKind.CHUNK, msgpack.packb(each)) for each in records]))

        assert use_all(path).startswith("damaged: ")


LIMITED = """
import resource, sys, time
sys.path[:0] = [{root!r}, {here!r}]
from pathlib import Path
from hostile_trace import use_all
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
told = use_all(Path(sys.argv[1]))
print(told)
"""


def use_all_with_little_memory(path: Path) -> str:
    """What a reader says that may have 1 GiB of addresses, and 30 seconds."""
    code = LIMITED.format(root=str(ROOT), here=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def bomb(kind: int, raw: bytes) -> bytes:
    return trace_of([(kind, raw)] * 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: bomb(RecordKind.CHUNK, bytes(limits.MAX_CHUNK)), id="zeros"),
        pytest.param(
            lambda: bomb(RecordKind.CHUNK, b"\x81\xa1a\xdd\x05\xff\xff\x00" + b"\x90" * 0x5FFFF00),
            id="lists in a chunk",
        ),
        pytest.param(
            lambda: bomb(RecordKind.CHUNK, b"\x81\xa1a\xdf\0\xff\xff\xff" + b"\xa0\x80" * 9**7),
            id="maps in a chunk",
        ),
        pytest.param(
            lambda: trace_of([], footer=b"\x81\xa1a\xdd\x09\xff\xff\x00" + b"\x90" * 0x9FFFF00),
            id="lists in the footer",
        ),
        pytest.param(
            lambda: (
                framing.prefix_bytes()
                + pack(RecordKind.HEADER, b"\xdd\0\x0f\xff\x00" + b"\x90" * 0xFFF00, 16)
            ),
            id="lists in the header",
        ),
        pytest.param(lambda: trace_of([]) + framing.SYNC * (1 << 20), id="false starts"),
    ],
)
def test_bombs_are_refused_in_little_memory(tmp_path, data):
    """A few kilobytes that would unpack to gigabytes of Python objects."""
    path = tmp_path / "a.trace"
    path.write_bytes(data())

    told = use_all_with_little_memory(path)

    assert "damaged" in told or "no sound payload" in told
