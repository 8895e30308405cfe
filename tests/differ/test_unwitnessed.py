"""Agreement of what is there says nothing of what is not: ranks, updates, the rest of a program."""

from pathlib import Path

import pytest
from synthetic import Run, write_trace

from traceparity.differ.check import check_run
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Flag, Phase


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two equal runs of three processes; of both the third one's trace was lost."""
    folders = [tmp_path / "one.trace", tmp_path / "two.trace"]
    for folder in folders:
        folder.mkdir()
        for rank in range(2):
            file = folder / f"rank{rank}.trace"
            write_trace(file, Run().steps(2), rank=rank, world_size=3)
    return folders


def test_runs_that_lack_the_same_rank_cannot_be_judged(runs):
    result = diff_runs(runs[0], [runs[1]], Policy())

    assert result.outcome is Outcome.ABSTAIN
    assert "the reference has the traces of 2 of 3 ranks" in result.reason


def test_a_folder_with_one_rank_of_several_is_not_that_rank(runs):
    for folder in runs:
        (folder / "rank1.trace").unlink()

    assert diff_runs(runs[0], [runs[1]], Policy()).outcome is Outcome.ABSTAIN


def test_the_file_of_one_rank_may_be_compared_alone(runs):
    result = diff_runs(runs[0] / "rank1.trace", [runs[1] / "rank1.trace"], Policy())

    assert result.outcome is Outcome.PASS
    assert "the target has the traces of 1 of 3 ranks" in result.notes


def test_a_check_of_some_ranks_is_none_of_the_run(runs):
    result = check_run([runs[0]], Policy())

    assert result.outcome is Outcome.ABSTAIN
    assert "3 ranks" in result.reason


def test_programs_that_ended_by_an_error_pass_with_a_word_of_it(bench):
    steps = Run().steps(3)
    steps[-1].add(Phase.STATE, "program", "ended_by", "RuntimeError: crash", flags=Flag.CONTEXT)

    result = bench.diff(steps, steps)

    assert result.outcome is Outcome.PASS
    assert "the program of the target ended by an error: RuntimeError: crash" in result.notes


def test_runs_without_an_update_pass_with_a_word_of_it(bench):
    tail = Run().steps(1)
    tail[0].tail = True

    result = bench.diff(tail, tail)

    assert any(note.startswith("no update was compared") for note in result.notes)
