"""Mistakes that a shell makes easily: one clear line, at once, and never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from traceparity.tracefmt.records import Header, Kind, Phase
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.writer import Writer


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "a.trace"
    writer = Writer(path, lambda: Header(program="train.py", capture={"digest": "xxh3-128"}))
    rows = Rows()
    site = writer.site(Phase.LOSS, "loss", "value", "train.py:3")
    rows.plain(site, 0, 0, Kind.SCALAR, 0, scalar_bytes(1.0))
    writer.write(0, rows)
    writer.close(complete=True)
    return path


def run(command: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"traceparity.cli.{command}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("diff", ["", "TRACE"]),
        ("diff", ["TRACE", ""]),
        ("diff", ["--repeat", "", "TRACE", "TRACE"]),
        ("diff", ["--policy", "", "TRACE", "TRACE"]),
        ("check", [""]),
        ("show", [""]),
    ],
)
def test_an_empty_path_is_a_mistake_and_not_the_current_folder(trace, command, arguments):
    done = run(command, *(trace if each == "TRACE" else each for each in arguments))

    assert done.returncode == 2
    assert "the path is empty" in done.stderr


def test_an_empty_path_is_no_place_to_record_to(tmp_path):
    done = run("record", "-o", "", "--", "true", cwd=tmp_path)

    assert done.returncode == 125
    assert "the path is empty" in done.stderr


@pytest.mark.parametrize("name", ["pipe", "run"])
def test_a_pipe_is_told_from_a_trace_and_not_waited_for(trace, tmp_path, name):
    """By itself, or where a run has the trace of a rank."""
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "run" / "rank0.trace")

    done = run("diff", trace, tmp_path / name)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "a pipe; a trace is read from a file" in done.stderr


def test_a_policy_that_is_no_text_is_one_clear_line(trace, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_bytes(b"\x80\x02}q\x00")

    done = run("diff", "--policy", policy, trace, trace)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{policy}: cannot read the policy: it is no text" in done.stderr


@pytest.mark.parametrize("command", ["check", "diff", "infer", "record", "show", "verify"])
def test_an_interrupt_while_a_command_is_imported_is_as_quiet_as_later(command):
    code = f"""
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from traceparity.cli.entry import {command}
{command}()
"""

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 130
    assert done.stderr == ""


def test_a_second_interrupt_while_a_command_exits_changes_nothing():
    code = """
import atexit, os, signal, click
from traceparity.cli.exits import run_command
@click.command()
def it():
    raise KeyboardInterrupt
atexit.register(os.kill, os.getpid(), signal.SIGTERM)
atexit.register(os.kill, os.getpid(), signal.SIGINT)
run_command("it", it)
"""

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr.strip()) == (130, "")


@pytest.mark.parametrize("columns", [40, 60, 200])
def test_a_report_is_as_wide_as_a_narrow_terminal(trace, columns):
    """80 columns at most, and where it does not go to a terminal."""
    import pty

    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "traceparity.cli.diff", str(trace), str(trace)],
        stdout=child,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": str(columns)},
    )
    os.close(child)
    text = b""
    while True:
        try:
            read = os.read(parent, 4096)
        except OSError:
            break
        text += read
        if not read:
            break
    process.wait(timeout=60)
    os.close(parent)

    lengths = [len(line) for line in text.decode().splitlines()]
    assert process.returncode == 0
    assert max(lengths) <= min(columns, 80)
    assert max(lengths) > 30
