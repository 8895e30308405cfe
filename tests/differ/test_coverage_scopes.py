"""Coverage: epochs, loaders, parts of a run, and which samples should be seen."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sampled import (
    Batch,
    Epoch,
    epoch,
    judge,
    judge_parts,
    kinds,
    names,
    write_rank,
    write_run,
)

from traceparity.differ import coverage_text
from traceparity.differ.policy import Coverage
from traceparity.differ.result import Outcome

PASS, ABSTAIN = Outcome.PASS, Outcome.ABSTAIN


def test_each_epoch_is_judged_by_itself(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1]), epoch([1, 1]), epoch([1, 0])])

    report = judge(path, expected=(0, 1))

    assert [(found.kind, found.epoch) for found in report.violations] == [
        ("duplicate", 1),
        ("missing", 1),
    ]


def test_over_the_whole_trace_two_good_epochs_are_not_exactly_once(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1]), epoch([1, 0])])

    assert judge(path, expected=(0, 1)).outcome is PASS
    assert kinds(judge(path, expected=(0, 1), scope="trace")) == ["duplicate", "duplicate"]


def test_violations_come_epoch_by_epoch(tmp_path):
    epochs = [epoch([n], [n]) for n in range(6)]
    path = write_run(tmp_path, epochs)

    assert [found.epoch for found in judge(path).violations] == [*range(6)]


def test_a_pass_that_one_rank_alone_makes_without_training_shifts_no_epoch(tmp_path):
    """Rank 0 evaluates over the training data after epoch 0; rank 1 does not."""
    looked = epoch(Batch([0, 1], trained=False), recorded=1)
    ranks = (
        [epoch([0, 1]), looked, epoch([2, 3], recorded=2)],
        [epoch([2, 3]), epoch([0, 1])],
    )
    path = write_run(tmp_path, *ranks)

    report = judge(path, expected="range(0, 4)")

    assert report.outcome is PASS
    assert [scope.epoch for scope in report.scopes] == [0, 1]


def test_loaders_are_judged_apart(tmp_path):
    """Two zipped loaders have the same numbers and mean different samples."""
    batches = [
        Batch([at], loader=f"loader[{number}]", length=2) for at in (0, 1) for number in (0, 1)
    ]
    path = write_run(tmp_path, [Epoch(batches, ended=False)])

    report = judge(path)

    assert report.outcome is PASS
    assert {scope.loader for scope in report.scopes} == {"loader[0]", "loader[1]"}


def test_a_loader_that_was_never_trained_on_is_not_judged(tmp_path):
    path = write_run(
        tmp_path, [epoch([0, 1], length=2), epoch(Batch([5, 5], trained=False, loader="loader"))]
    )

    assert judge(path).outcome is PASS
    assert judge(path, count="fetched").outcome is PASS


def test_trained_and_fetched_are_counted_apart(tmp_path):
    """Sample 2 was fetched and left, as by a loop that ends early."""
    batches = [Batch([0]), Batch([1]), Batch([2], trained=False)]
    path = write_run(tmp_path, [epoch(*batches)])

    assert kinds(judge(path, expected=(0, 1, 2))) == ["missing"]
    assert judge(path, expected=(0, 1, 2), count="fetched").outcome is PASS


def test_fast_forwarded_batches_are_fetched_and_not_trained(tmp_path):
    """They stand before the first batch that was trained on."""
    batches = [Batch([0], trained=False), Batch([1], trained=False), Batch([2])]
    path = write_run(tmp_path, [epoch(*batches)])

    report = judge(path, expected=(0, 1, 2), count="fetched")

    assert report.outcome is PASS
    assert report.observations == 3
    assert kinds(judge(path, expected=(0, 1, 2))) == ["missing", "missing"]


def test_evaluation_is_neither_trained_nor_fetched(tmp_path):
    batches = [Batch([0]), Batch([0], evaluation=True)]
    path = write_run(tmp_path, [epoch(*batches)])

    assert judge(path, expected=(0,), count="fetched").outcome is PASS


def test_the_datasets_length_is_the_universe_of_a_sampler(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1], length=4)], [epoch([3, 3], length=4)])

    report = judge(path)

    assert (kinds(report), names(report)) == (["duplicate", "missing"], [3, 2])
    assert report.scopes[0].expected == "the 4 samples of the dataset"


def test_a_part_of_a_dataset_is_the_universe_that_it_lists(tmp_path):
    listing = [40, 7, 99]
    batches = [Batch([99, 7], length=3, listing=listing), Batch([40], length=3)]
    whole = write_run(tmp_path, [epoch(*batches), epoch([7, 40, 99], length=3)])

    assert judge(whole).outcome is PASS


def test_a_sample_that_a_part_of_a_dataset_lists_and_nobody_saw_is_missing(tmp_path):
    path = write_run(tmp_path, [epoch(Batch([99, 7], length=3, listing=[40, 7, 99]))])

    assert names(judge(path)) == [40]


def test_a_sampler_that_asks_beyond_the_length_leaves_the_universe_unknown(tmp_path):
    """A dataset may take any keys; its length does not say which."""
    path = write_run(tmp_path, [epoch([10, 20], length=2)])

    report = judge(path)

    assert report.outcome is ABSTAIN
    assert "asked for others than 0 to 1" in report.doubts[0]


def test_datasets_of_different_lengths_on_two_ranks_leave_the_universe_unknown(tmp_path):
    path = write_run(tmp_path, [epoch([0], length=2)], [epoch([1], length=3)])

    report = judge(path)

    assert report.outcome is ABSTAIN
    assert "different datasets" in report.doubts[0]


@pytest.mark.parametrize("rule", ["exactly_once", "at_least_once", "expected_padding"])
def test_an_unknown_universe_abstains_and_says_what_to_declare(tmp_path, rule):
    path = write_run(tmp_path, [epoch([0, 1])])

    report = judge(path, rule, padding=0 if rule == "expected_padding" else None)

    assert report.outcome is ABSTAIN
    assert 'expected = "range(0, 50000)"' in coverage_text.reason(report)


def test_a_duplicate_is_one_whatever_the_universe(tmp_path):
    path = write_run(tmp_path, [epoch([0, 0])])

    assert kinds(judge(path)) == ["duplicate"]


def test_the_references_samples_are_the_universe_where_nothing_else_tells(tmp_path):
    field = {"batch[row]": np.array([3, 1, 2])}
    for name in ("reference", "same", "other"):
        (tmp_path / name).mkdir()
    reference = write_run(tmp_path / "reference", [epoch(Batch(None, fields=field))])
    same = write_run(
        tmp_path / "same",
        [epoch(*(Batch(None, fields={"batch[row]": np.array([n])}) for n in (1, 2, 3)))],
    )
    other = write_run(
        tmp_path / "other", [epoch(Batch(None, fields={"batch[row]": np.array([3, 1, 4])}))]
    )
    coverage = Coverage("exactly_once", id="batch[row]")

    good, bad = (judge_parts([path], coverage, reference) for path in (same, other))

    assert good.outcome is PASS
    assert "reference" in good.scopes[0].expected
    assert (kinds(bad), names(bad)) == (["unexpected", "missing"], [4, 2])


def test_a_reference_that_was_cut_off_is_no_universe(tmp_path):
    (tmp_path / "reference").mkdir()
    reference = write_run(tmp_path / "reference", [epoch([0], ended=False)], complete=False)
    path = write_run(tmp_path, [epoch([0])])

    report = judge_parts([path], Coverage("exactly_once"), reference)

    assert report.outcome is ABSTAIN


def test_a_resumed_run_may_have_begun_its_first_epoch_elsewhere(tmp_path):
    path = write_run(tmp_path, [epoch([2]), epoch([0, 1, 2])])

    report = judge_parts([path], Coverage("exactly_once", expected="range(0, 3)"), resumed=True)

    assert report.outcome is ABSTAIN
    assert "goes on from a checkpoint" in report.doubts[0]


def parts(tmp_path: Path, *segments: Sequence[Epoch]) -> list[Path]:
    return [
        write_rank(tmp_path / f"{number}.trace", epochs) for number, epochs in enumerate(segments)
    ]


def test_an_epoch_goes_on_in_the_next_segment(tmp_path):
    segments = parts(tmp_path, [epoch([0], [1], ended=False)], [epoch([2]), epoch([2, 1, 0])])

    report = judge_parts(segments, Coverage("exactly_once", expected="range(0, 3)"))

    assert report.outcome is PASS
    assert [scope.epoch for scope in report.scopes] == [0, 1]


def test_steps_that_were_done_again_count_once(tmp_path):
    """The first part was killed after step 1 and the second began from a checkpoint of step 1."""
    segments = parts(tmp_path, [epoch([0], [1], ended=False)], [epoch([1], [2])])
    coverage = Coverage("exactly_once", expected="range(0, 3)")

    assert judge_parts(segments, coverage, cuts=[{0: 1}]).outcome is PASS
    assert kinds(judge_parts(segments, coverage)) == ["duplicate"]


def test_a_new_epoch_begins_in_the_next_segment_where_all_samples_were_seen(tmp_path):
    """The first part stopped right after the last batch, before the loop saw the end."""
    segments = parts(tmp_path, [epoch([0], [1], ended=False, length=2)], [epoch([1, 0], length=2)])

    assert judge_parts(segments, Coverage("exactly_once")).outcome is PASS
