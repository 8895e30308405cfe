"""``tp-diff`` and policies: presets, what they come to with options, accumulation declared."""

import json
import subprocess
import sys

import pytest
from synthetic import Run, write_trace
from windows import run as windows

from traceparity.differ.policy_file import read_policy
from traceparity.differ.policy_options import with_options

PROGRAM = [sys.executable, "-m", "traceparity.cli.diff"]


@pytest.fixture
def diff(tmp_path):
    def diff(*words: object) -> subprocess.CompletedProcess[str]:
        command = [*PROGRAM, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    return diff


def test_the_effective_policy_is_printed_as_a_file_that_declares_it(diff, tmp_path):
    done = diff("--print-policy", "--policy", "accumulation", "--microbatches", "1:4")
    (tmp_path / "printed.toml").write_text(done.stdout)

    assert done.returncode == 0
    expected = with_options(tmp_path / "printed.toml")
    assert read_policy(tmp_path / "printed.toml") == expected
    assert expected.align.microbatches == (1, 4)


def test_without_traces_there_is_nothing_to_compare(diff):
    done = diff("--policy", "close")

    assert done.returncode == 2
    assert "REFERENCE" in done.stderr


def test_a_preset_is_named_like_a_file(diff, tmp_path):
    trace = write_trace(tmp_path / "a.trace", Run().steps(2))

    done = diff(trace, trace, "--policy", "close", "--format", "json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["policy"]["compare"][0] == {"site": "*", "rel_l2": 1e-4}


def test_accumulation_is_declared_by_options(diff, tmp_path):
    full = write_trace(tmp_path / "full.trace", windows([8], [8]))
    halves = write_trace(tmp_path / "halves.trace", windows([4, 4], [4, 4]))
    words = (full, halves, "--policy", "accumulation", "--format", "json")

    declared = json.loads(diff(*words, "--microbatches", "1:2").stdout)
    otherwise = diff(*words, "--microbatches", "1:1")

    assert declared["outcome"] == "PASS"
    assert declared["alignment"] == {"kind": "accumulation", "step_offset": 0, "how": "declared"}
    assert declared["policy"]["align"]["microbatches"] == {"reference": 1, "target": 2}
    assert otherwise.returncode == 1
    assert "the target took 2 micro-batches in update 0, 1 declared" in otherwise.stdout


def test_a_proposed_table_is_printed_and_nothing_is_compared(diff, tmp_path):
    traces = [
        write_trace(tmp_path / f"{name}.trace", Run(layers).steps(2))
        for name, layers in (("old", ("embed", "head")), ("new", ("tokens", "head")))
    ]

    done = diff("--propose-renames", *traces)

    # The made-up values follow from the names, so that nothing but the head has a counterpart.
    assert done.returncode == 0
    assert "# Without a counterpart in the target: tokens.weight" in done.stdout
    assert "PASS" not in done.stdout
    assert "FAIL" not in done.stdout
