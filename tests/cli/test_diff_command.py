"""``tp-diff`` as a user runs it: exit status, streams, formats, mistakes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Header, Kind, Phase
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.writer import Writer

PROGRAM = [sys.executable, "-m", "traceparity.cli.diff"]


def write(path: Path, losses: list[float], *, complete: bool = True) -> Path:
    writer = Writer(path, lambda: Header(program="train.py", capture={"digest": "xxh3-128"}))
    site = writer.site(Phase.LOSS, "loss", "value", "train.py:3")
    rate = writer.site(Phase.OPTIMIZER, "optimizer[0] group[0]", "lr", "train.py:4")
    for step, loss in enumerate(losses):
        rows = Rows()
        rows.plain(site, 0, 0, Kind.SCALAR, 0, scalar_bytes(loss))
        rows.plain(rate, 0, 0, Kind.SCALAR, 0, scalar_bytes(0.1))
        writer.write(step, rows)
    writer.close(complete=complete, reason="" if complete else "killed")
    return path


@pytest.fixture
def traces(tmp_path):
    return {
        "a": write(tmp_path / "a.trace", [1.0, 2.0, 3.0]),
        "same": write(tmp_path / "same.trace", [1.0, 2.0, 3.0]),
        "other": write(tmp_path / "other.trace", [1.0, 2.5, 3.0]),
        "killed": write(tmp_path / "killed.trace", [1.0, 2.0], complete=False),
    }


def tp_diff(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("target", "status", "outcome"),
    [("same", 0, "PASS"), ("other", 1, "FAIL"), ("killed", 3, "ABSTAIN")],
)
def test_the_exit_status_tells_the_outcome(traces, target, status, outcome):
    done = tp_diff(traces["a"], traces[target])

    assert done.returncode == status
    assert done.stdout.startswith(outcome)
    assert done.stderr == ""


def test_allow_abstain_turns_abstain_and_nothing_else_into_success(traces):
    assert tp_diff(traces["a"], traces["killed"], "--allow-abstain").returncode == 0
    assert tp_diff(traces["a"], traces["other"], "--allow-abstain").returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["{a}"],
        ["{a}", "{same}", "--align", "sideways"],
        ["{a}", "{same}", "--format", "yaml"],
        ["{a}", "{same}", "--no-such-option"],
        ["{a}", "{same}", "--step-offset", "soon"],
        ["{a}", "{same}", "--policy", "{tmp}/absent.toml"],
        ["{a}", "{tmp}/absent.trace"],
        ["{a}", "{tmp}"],
        ["{a}", "{same}", "--format", "json={tmp}/no/such/folder/result.json"],
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_status_2(traces, tmp_path, arguments):
    values = {name: str(path) for name, path in traces.items()} | {"tmp": str(tmp_path)}

    done = tp_diff(*(argument.format(**values) for argument in arguments))

    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a trace", b"\x00" * 4096])
def test_a_file_that_is_no_trace_is_an_error_that_names_it(traces, tmp_path, content):
    broken = tmp_path / "broken.trace"
    broken.write_bytes(content)

    done = tp_diff(traces["a"], broken, "--format", f"json={tmp_path / 'result.json'}")

    assert done.returncode == 2
    assert "broken.trace" in done.stderr
    assert done.stderr.count("\n") == 1
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["outcome"] == "ERROR"
    assert result["first_divergence"] is None


def test_json_on_stdout_and_text_to_a_file_at_once(traces, tmp_path):
    report = tmp_path / "report.txt"

    done = tp_diff(traces["a"], traces["other"], "--format", "json", "--format", f"text={report}")

    assert json.loads(done.stdout)["first_divergence"]["step"] == 1
    assert report.read_text().startswith("FAIL")


def test_github_gets_a_summary_beside_the_annotation(traces, tmp_path):
    """It is added to what other steps of the job have written; without a workflow there is none."""
    page = tmp_path / "summary.md"
    page.write_text("before\n")

    done = tp_diff(
        traces["a"], traces["other"], "--format", "github", GITHUB_STEP_SUMMARY=str(page)
    )
    alone = tp_diff(traces["a"], traces["other"], "--format", "text", GITHUB_STEP_SUMMARY=str(page))

    assert done.stdout.startswith("::error file=train.py,line=3")
    assert alone.returncode == 1
    text = page.read_text()
    assert text.startswith("before\n### ❌ FAIL ")
    assert text.count("### ") == 1
    assert "<details><summary>Report</summary>\n\n```text\nFAIL  The runs part at step 1" in text


def test_a_policy_file_decides(traces, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[[compare]]\nsite = "loss:*"\natol = 1.0\n')

    assert tp_diff(traces["a"], traces["other"], "--policy", policy).returncode == 0


def test_ignored_sites_are_not_compared(traces):
    done = tp_diff(traces["a"], traces["other"], "--ignore", "loss:*", "--format", "json")

    assert json.loads(done.stdout)["compared"]["ignored"] > 0
    assert done.returncode == 0


def test_a_comparison_of_which_all_is_ignored_abstains(traces):
    done = tp_diff(traces["a"], traces["same"], "--ignore", "*")

    assert done.returncode == 3
    assert "Nothing was compared" in done.stdout


def test_a_repeated_reference_is_compared_first(traces):
    done = tp_diff(traces["a"], traces["same"], "--repeat", traces["other"])

    assert done.returncode == 3
    assert "disagrees with its repetition" in done.stdout


def test_an_interrupt_exits_130(traces):
    """A pipe that nobody writes to keeps the command busy until it is interrupted."""
    fifo = traces["a"].with_name("fifo")
    os.mkfifo(fifo)
    command = [*PROGRAM, "--policy", str(fifo), str(traces["a"]), str(traces["same"])]
    # Opening the pipe succeeds when the command opens it too, so it is past its start-up.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, open(fifo, "wb"):
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_closed_pipe_is_no_reason_to_complain(traces):
    command = f"{sys.executable} -m traceparity.cli.diff {traces['a']} {traces['other']} | true"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert done.stderr == ""


def test_help_costs_little_and_loads_neither_numpy_nor_torch():
    code = (
        "import sys\n"
        "sys.argv = ['tp-diff', '--help']\n"
        "from traceparity.cli.diff import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print({'numpy', 'torch', 'rich', 'msgpack'} & set(sys.modules))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.endswith("set()\n")


def test_no_colour_when_stdout_is_no_terminal(traces):
    assert "\x1b" not in tp_diff(traces["a"], traces["other"]).stdout


@pytest.mark.parametrize("command", ["diff", "show", "check"])
def test_a_report_that_has_nowhere_to_go_is_no_internal_error(tmp_path, command):
    trace = str(write(tmp_path / "a.trace", [1.0, 2.0]))
    arguments = [trace, trace] if command == "diff" else [trace]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", f"traceparity.cli.{command}", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert done.returncode == 2
    assert "cannot write the report: No space left on device" in done.stderr
    assert "internal error" not in done.stderr


def test_a_damaged_step_is_an_error_although_the_index_is_equal(tmp_path):
    whole = write(tmp_path / "whole.trace", [1.0, 2.0, 3.0])
    damaged = tmp_path / "damaged.trace"
    data = bytearray(whole.read_bytes())
    with open_trace(whole) as trace:
        offset, length = trace.steps[1].chunks[0]
    data[offset + length - 5] ^= 1
    damaged.write_bytes(data)

    done = subprocess.run(
        [sys.executable, "-m", "traceparity.cli.diff", str(whole), str(damaged)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "checksum" in done.stderr
