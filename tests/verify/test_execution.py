"""One command under the recorder: what is told of it, and what is never judged."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from traceparity.tracefmt.errors import TraceExistsError
from traceparity.verify.execution import run_plain, run_recorded

TRAIN = [sys.executable, str(Path(__file__).with_name("fake_training.py"))]


def alive(mark: str) -> list[Path]:
    """Processes with a mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in entry.read_bytes():
                found.append(entry)
        except OSError:
            continue
    return found


def test_a_command_is_told_with_its_process_and_its_logs(tmp_path):
    done = run_recorded([*TRAIN, "--say", "hello"], out=tmp_path / "a.trace", env={"KEY": "secret"})

    assert done.ok
    assert (done.status, done.stdout_tail, done.stderr_tail) == (0, "hello", "a warning")
    assert done.stdout.read_text() == "hello\n"
    assert done.environment == ("KEY",)
    (process,) = done.processes
    assert process.pid == done.pid
    assert process.started > 0
    assert process.host


def test_a_command_that_trains_nothing_has_no_trace_to_judge(tmp_path):
    done = run_recorded([sys.executable, "-c", "print(1)"], out=tmp_path / "a.trace")

    assert done.status == 0
    assert "no process recorded itself" in done.problem
    assert done.stdout_tail == "1"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ([*TRAIN, "--status", "7"], "it ended with exit status 7"),
        ([*TRAIN, "--session", "another"], "is not of this execution"),
        ([*TRAIN, "--error", "ValueError: x"], "the training ended by an error: ValueError: x"),
        (["missing.py"], "missing.py: no such script"),
        (["no-such-command-anywhere"], "no such command"),
        ([], "the command is empty"),
    ],
)
def test_what_cannot_be_judged_says_why(command, problem, tmp_path):
    assert problem in run_recorded(command, out=tmp_path / "a.trace").problem


def test_a_script_that_is_not_executable_is_told(tmp_path):
    (tmp_path / "train").write_text("#!/bin/sh\n")

    done = run_recorded("./train", out=tmp_path / "a.trace", cwd=tmp_path)

    assert "is not executable" in done.problem


def test_a_timeout_ends_the_whole_process_group_and_what_left_it(tmp_path):
    """The training has started a process with a session of its own."""
    mark = f"TIMEOUT_TEST={tmp_path}"
    name, _, value = mark.partition("=")
    began = time.monotonic()

    done = run_recorded([*TRAIN, "--hang"], out=tmp_path / "a.trace", env={name: value}, timeout=2)

    assert done.problem == "it took longer than 2 s"
    assert time.monotonic() - began < 30
    assert alive(mark) == []


LEAVING = """
sleep {number} &
env -i setsid sleep {number} &
(env -i setsid bash -c 'trap "" TERM; sleep {number}; sleep {number}' &)
sleep 0.3
"""


def sleeping(number: float) -> list[str]:
    """Processes that were asked to sleep for so long."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(number) in entry.read_text().split("\0"):
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


@pytest.fixture
def number() -> float:
    """Seconds for which nothing else sleeps."""
    return 600 + os.getpid() + time.time_ns() % 1000 / 1000


def test_what_a_command_leaves_behind_is_ended_and_nothing_else(tmp_path, number):
    """In its group, or in sessions of their own without a mark; beside another command."""
    ours = subprocess.Popen(["sleep", str(number + 1)])
    stop = threading.Event()
    other = threading.Thread(
        target=run_plain, args=[["sleep", str(number + 2)]],
        kwargs={"out": tmp_path / "b.trace", "stop": stop},
    )  # fmt: skip
    other.start()

    done = run_plain(["bash", "-c", LEAVING.format(number=number)], out=tmp_path / "a.trace")

    assert (done.status, done.problem) == (0, "")
    assert sleeping(number) == []
    assert (len(sleeping(number + 1)), len(sleeping(number + 2))) == (1, 1)
    stop.set()
    other.join()
    assert sleeping(number + 2) == []
    ours.kill()
    ours.wait()


def test_a_training_that_outlives_its_command_is_ended_and_not_judged(tmp_path):
    words = " ".join([*TRAIN, "--linger"])
    script = f"{words} & until [ -e {tmp_path / 'a.lingers'} ]; do sleep 0.05; done"

    done = run_recorded(["bash", "-c", script], out=tmp_path / "a.trace")

    assert "still runs and records" in done.problem


def test_no_command_outlives_the_one_that_runs_it(tmp_path, number):
    """Not even where that is killed, and can do nothing about it."""
    code = (
        "import sys; from pathlib import Path; from traceparity.verify.execution import run_plain;"
        "run_plain(['sleep', sys.argv[1]], out=Path('a.trace'))"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(number)], cwd=tmp_path)
    wait_until(lambda: len(sleeping(number)) == 2)

    os.kill(child.pid, signal.SIGKILL)
    child.wait()

    wait_until(lambda: sleeping(number) == [])


def wait_until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_another_thread_can_end_it(tmp_path):
    stop = threading.Event()
    threading.Timer(1, stop.set).start()

    done = run_recorded([*TRAIN, "--hang"], out=tmp_path / "a.trace", stop=stop)

    assert done.problem == "it was interrupted"


def test_a_trace_that_is_there_is_replaced_only_when_that_is_asked_for(tmp_path):
    out = tmp_path / "a.trace"
    run_recorded(TRAIN, out=out)

    with pytest.raises(TraceExistsError):
        run_recorded(TRAIN, out=out)
    failed = run_recorded([*TRAIN, "--no-trace"], out=out, overwrite=True)
    assert not failed.ok
    assert not out.exists()


def test_relative_paths_of_a_command_begin_in_its_folder(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "train.py").write_text(Path(TRAIN[1]).read_text().replace(
        "Path(__file__).parents[1]", f"Path({str(Path(__file__).parents[1])!r})"))  # fmt: skip

    done = run_recorded("train.py", out=tmp_path / "a.trace", cwd=tmp_path / "inner")

    assert done.ok, done
