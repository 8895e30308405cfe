"""Whatever a write meets, the file ends after the last sound record and the writer can go on."""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from trace_story import Seen, Step, read_step, sample, scalar, write, write_step

from traceparity.tracefmt import limits, writer
from traceparity.tracefmt.errors import TraceError, TraceLimitError
from traceparity.tracefmt.records import Header
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.writer import Writer

ROOT = Path(__file__).parents[2]


class Disk:
    """Stands between a writer and its file; has room for some bytes."""

    def __init__(self, file, room, error=None):
        self.file = file
        self.room = room
        self.error = error or OSError(errno.ENOSPC, "No space left on device")
        self.can_truncate = True

    def write(self, data):
        if not self.room:
            raise self.error
        written = self.file.write(data[: self.room])
        self.room -= written
        return written

    def truncate(self, size):
        if not self.can_truncate:
            raise OSError(errno.EIO, "Input/output error")
        return self.file.truncate(size)

    def __getattr__(self, name):
        return getattr(self.file, name)


def on_disk(path, room, error=None):
    """A writer whose disk has room for some bytes after the header."""
    ours = Writer(path, Header)
    ours._file = disk = Disk(ours.open(), room, error)
    return ours, disk


@pytest.mark.parametrize("room", [0, 1, 33, 700])
@pytest.mark.parametrize("error", [None, KeyboardInterrupt()], ids=["full disk", "interrupt"])
def test_a_step_that_cannot_be_written_is_not_there_at_all(tmp_path, opened, room, error):
    story = sample()
    ours, disk = on_disk(tmp_path / "a.trace", 1 << 20, error)
    write_step(ours, story[0])
    size, disk.room = ours.bytes_written, room

    with pytest.raises(type(disk.error)):
        write_step(ours, story[1], parts=2)

    # A part of the step may be in the file; what could not be written is not.
    ours.abandon()
    trace = opened(tmp_path / "a.trace")
    assert read_step(trace, 0) == story[0]
    assert (tmp_path / "a.trace").stat().st_size == ours.bytes_written >= size
    assert not trace.damage


@pytest.mark.parametrize("can_truncate", [True, False])
def test_the_writer_goes_on_when_there_is_room_again(tmp_path, opened, can_truncate):
    """Names of the failed chunk travel with the next one."""
    story = [
        Step(number, (Seen(component=f"part.{number}"), scalar(number))) for number in range(4)
    ]
    ours, disk = on_disk(tmp_path / "a.trace", 1 << 20)
    write_step(ours, story[0])
    disk.room, disk.can_truncate = 100, can_truncate
    for step in story[1:3]:
        with pytest.raises(OSError, match=r"No space|Input/output"):
            write_step(ours, step)
    disk.room, disk.can_truncate = 1 << 20, True

    write_step(ours, story[2])
    write_step(ours, story[3])
    ours.close()

    trace = opened(tmp_path / "a.trace")
    assert [read_step(trace, step.number) for step in trace.steps] == [story[0], *story[2:]]
    assert trace.complete


def test_a_large_step_is_written_in_whole_or_not_at_all(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(Rows.parts, "__defaults__", (500,))
    seen = tuple(Seen(call=call, value=bytes([call]) * 50) for call in range(100))
    ours, disk = on_disk(tmp_path / "a.trace", 1 << 20)
    write_step(ours, Step(0, seen))
    disk.room = 5000
    with pytest.raises(OSError, match="No space"):
        write_step(ours, Step(1, seen))
    disk.room = 1 << 20
    write_step(ours, Step(1, seen[::-1]))
    ours.close()

    trace = opened(tmp_path / "a.trace")

    assert [read_step(trace, number).seen for number in (0, 1)] == [seen, seen[::-1]]
    assert trace.steps[1].observations[2] == 100


def test_a_value_that_cannot_be_written_is_written_again(tmp_path, opened):
    ours, disk = on_disk(tmp_path / "a.trace", 50)
    noise = os.urandom(300)
    with pytest.raises(OSError, match="No space"):
        ours.value(bytes(16), noise)
    disk.room = 1 << 20
    write_step(ours, Step(0, (Seen(digest=bytes(16), value=noise, external=True),)))
    ours.close()

    trace = opened(tmp_path / "a.trace")

    assert trace.value(trace.columns(0), 0) == noise


def test_a_footer_that_cannot_be_written_leaves_the_steps(tmp_path, opened):
    story = sample()
    ours, disk = on_disk(tmp_path / "a.trace", 1 << 20)
    for step in story:
        write_step(ours, step)
    disk.room = 200

    with pytest.raises(OSError, match="No space"):
        ours.close()

    ours.close()
    assert disk.file.closed
    trace = opened(tmp_path / "a.trace")
    assert [read_step(trace, step.number) for step in trace.steps] == list(story)
    assert not trace.complete


def test_a_header_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(file, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, "_write_all", full)

    with pytest.raises(OSError, match="No space"):
        Writer(tmp_path / "a.trace", Header).open()
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_is_no_plain_data_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        Writer(tmp_path / "a.trace", lambda: Header(environment={"x": object()})).open()
    assert list(tmp_path.iterdir()) == []


FULL = """
import resource, signal, sys
sys.path[:0] = [{root!r}, {here!r}]
from pathlib import Path
from trace_story import Seen, Step, write_step
from traceparity.tracefmt.records import Header
from traceparity.tracefmt.writer import Writer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
writer, number, failures = Writer(Path(sys.argv[1]), Header), 0, 0
while failures < 5:
    try:
        write_step(writer, Step(number, tuple(Seen(call=call) for call in range(number))))
    except OSError:
        failures += 1
    number += 1
try:
    writer.close()
except OSError:
    print(number)
"""


def test_a_file_that_the_system_lets_grow_no_further_stays_readable(tmp_path, opened):
    """The real thing: a limit of the operating system, met by a real process."""
    code = FULL.format(root=str(ROOT), here=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.trace")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    trace = opened(tmp_path / "a.trace")

    assert [step.number for step in trace.steps] == list(range(int(done.stdout) - 5))
    assert all(len(trace.columns(step.number)) == step.number for step in trace.steps)
    assert not trace.damage
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 20_000
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN


def test_steps_go_forward(tmp_path):
    ours = Writer(tmp_path / "a.trace", Header)
    write_step(ours, Step(3, (Seen(),)))

    with pytest.raises(ValueError, match="step 2 comes after step 3"):
        write_step(ours, Step(2, (Seen(),)))
    ours.close()


def test_a_trace_has_a_last_step(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(limits, "MAX_STEPS", 2)
    ours = Writer(tmp_path / "a.trace", Header)
    for number in range(2):
        write_step(ours, Step(number, (Seen(call=number),)))

    with pytest.raises(TraceLimitError, match="at most 2 steps"):
        write_step(ours, Step(2, (Seen(),)))
    ours.close()
    assert len(opened(tmp_path / "a.trace").steps) == 2


def test_a_closed_trace_takes_nothing_more(tmp_path):
    ours = Writer(tmp_path / "a.trace", Header)
    write_step(ours, Step(0, (Seen(),)))
    ours.close()
    data = (tmp_path / "a.trace").read_bytes()

    for attempt in (lambda: write_step(ours, Step(1, (Seen(),))), lambda: ours.value(b"d", b"v")):
        with pytest.raises(TraceError, match="closed"):
            attempt()
    ours.close()
    ours.abandon()
    assert (tmp_path / "a.trace").read_bytes() == data


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_never_writes_to_its_parents_trace(tmp_path, opened):
    """A child that exits as a program does runs the parent's clean-up."""
    ours = Writer(tmp_path / "a.trace", Header)
    write_step(ours, Step(0, (Seen(),)))
    child = os.fork()
    if child == 0:
        try:
            write_step(ours, Step(1, (Seen(),)))
        except TraceError:
            ours.close()
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    write_step(ours, Step(1, (Seen(call=9),)))
    ours.close()

    trace = opened(tmp_path / "a.trace")

    assert os.waitstatus_to_exitcode(status) == 7
    assert trace.complete
    assert read_step(trace, 1).seen == (Seen(call=9),)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (object(), TypeError),
        ({1: 2}, TypeError),
        (1 << 70, OverflowError),
        ("x" * (limits.MAX_PLAIN + 1), ValueError),
        ([float("nan"), {2}], TypeError),
    ],
    ids=["object", "key", "integer", "length", "set"],
)
def test_what_is_no_plain_value_is_refused(value, error):
    with pytest.raises(error):
        scalar_bytes(value)


def test_a_second_trace_at_the_same_place_is_equal(tmp_path):
    """Nothing in a trace depends on when or where it was written, its header apart."""
    first, second = (write(tmp_path / name, sample()) for name in ("a.trace", "b.trace"))

    assert first.read_bytes() == second.read_bytes()
