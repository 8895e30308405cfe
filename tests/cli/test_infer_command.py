"""``tp-infer`` and ``tp-check --invariants`` as a user runs them, on made-up traces."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import Run, write_trace

from traceparity.tracefmt.records import Phase


def run(command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"traceparity.cli.{command}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trace(tmp_path_factory.mktemp("good") / "good.trace", Run().steps(12))


@pytest.fixture(scope="module")
def written(good: Path) -> Path:
    file = good.with_name("invariants.jsonl")
    done = run("infer", good, "-o", file)
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture
def learned(written: Path, tmp_path: Path) -> Path:
    """The invariants of the good run, in a file of the test's own."""
    return Path(shutil.copy(written, tmp_path))


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose head is frozen from the first step on."""
    steps = Run().steps(12)
    site = Phase.STATE, "head.weight", "requires_grad"
    steps[0].rows[:] = [
        dataclasses.replace(row, value=False)
        if (row.phase, row.component, row.field) == site
        else row
        for row in steps[0].rows
    ]
    return write_trace(tmp_path_factory.mktemp("frozen") / "frozen.trace", steps)


def test_a_good_run_passes_its_own_invariants(good, learned):
    done = run("check", good, "--invariants", learned)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("PASS  All ")


def test_a_run_that_breaks_one_fails_and_says_where(frozen, learned):
    done = run("check", frozen, "--invariants", learned, "--format", "json")
    result = json.loads(done.stdout)

    assert done.returncode == 1
    cause = result["invariants"]["causes"][0]["first"]
    assert (cause["step"], cause["phase"], cause["component"]) == (0, "state", "head.weight")
    assert (cause["expected"], cause["seen"]) == ("require gradients", "are frozen")
    assert cause in result["violations"]
    assert result["violations_total"] == len(result["violations"])


@pytest.mark.parametrize("name", ["text", "junit", "github"])
def test_every_format_names_the_broken_invariant(frozen, learned, name):
    done = run("check", frozen, "--invariants", learned, "--format", name)

    assert done.returncode == 1
    assert "require gradients" in " ".join(done.stdout.split())


def test_an_accepted_deviation_is_recorded_with_its_reason_and_fails_no_more(frozen, learned):
    result = json.loads(run("check", frozen, "--invariants", learned, "--format", "json").stdout)
    names = {each["invariant"] for each in result["violations"]}

    accepts = [part for name in names for part in ("--accept", f"{name}=the head is kept")]
    done = run("check", frozen, "--invariants", learned, *accepts)

    assert done.returncode == 0, done.stdout
    assert "accepted" in done.stdout
    assert run("check", frozen, "--invariants", learned).returncode == 0
    assert learned.read_text().count('"accepted": "the head is kept"') == len(names)


def test_two_runs_of_the_command_write_the_same_bytes(good, learned, tmp_path):
    again = tmp_path / "again.jsonl"
    run("infer", good, "-o", again)

    assert again.read_bytes() == learned.read_bytes()


def test_an_explanation_says_what_an_invariant_rests_on(learned):
    first = json.loads(learned.read_text().splitlines()[0])

    done = run("infer", learned, "--explain", first["id"])

    assert done.returncode == 0
    assert first["text_description"] in done.stdout
    assert "supported" in done.stdout


def test_merged_files_hold_each_invariant_once(learned, tmp_path):
    merged = tmp_path / "merged.jsonl"

    done = run("infer", "--merge", learned, learned, "-o", merged)

    assert done.returncode == 0
    assert merged.read_bytes() == learned.read_bytes()


def test_relations_are_chosen_by_name_letter_or_alias(good, tmp_path):
    file = tmp_path / "some.jsonl"
    wanted = ("D", "ConsistencyRelation", "mode")
    enabled = [word for name in wanted for word in ("--enable-relation", name)]
    run("infer", good, "-o", file, *enabled, "--disable-relation", "mode")

    relations = {json.loads(line)["relation"] for line in file.read_text().splitlines()}

    assert relations == {"data"}


def test_a_recording_that_leaves_out_what_decides_is_no_pass(tmp_path, learned):
    narrow = write_trace(
        tmp_path / "narrow.trace", Run().steps(12), settings={"phases": ["optimizer", "state"]}
    )

    done = run("check", narrow, "--invariants", learned)

    assert done.returncode == 3
    assert "leaves out the phase" in " ".join(done.stdout.split())


def test_steps_that_were_left_out_break_nothing(tmp_path, learned):
    steps = [step for number, step in enumerate(Run().steps(12)) if number < 3]
    some = write_trace(tmp_path / "some.trace", steps, settings={"steps": [[0, 3]]})

    done = run("check", some, "--invariants", learned)

    assert done.returncode == 0, done.stdout


def test_a_damaged_file_is_one_clear_line(good, learned):
    learned.write_text(learned.read_text()[:-9])

    done = run("check", good, "--invariants", learned)

    assert done.returncode == 2
    assert str(learned) in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing.trace", "-o", "out.jsonl"), "no such file"),
        (("missing.trace",), "-o"),
        (("missing.trace", "-o", "x", "--enable-relation", "Magic"), "no relation 'Magic'"),
    ],
)
def test_a_mistake_exits_2_and_says_what_is_wrong(arguments, said):
    done = run("infer", *arguments)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_accepting_needs_a_reason_and_a_known_invariant(good, learned):
    for text in ("U-1", "U-1=why"):
        done = run("check", good, "--invariants", learned, "--accept", text)

        assert done.returncode == 2
        assert "accept" in done.stderr
