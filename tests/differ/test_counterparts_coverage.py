"""Each check and outcome rule of sample coverage, under the name that it has elsewhere."""

import numpy as np
import pytest
from sampled import Batch, epoch, judge, kinds, names, sharded, write_run

from traceparity.differ.errors import PolicyError
from traceparity.differ.policy import Coverage, Policy
from traceparity.differ.policy_file import read_policy
from traceparity.differ.policy_options import with_coverage_options
from traceparity.differ.result import Outcome

IDS = list(range(12))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_exactly_once_passes_on_any_number_of_ranks(tmp_path, world):
    assert judge(sharded(tmp_path, IDS, world), expected="range(0, 12)").outcome is Outcome.PASS


def test_padding_as_declared_passes_and_other_padding_fails(tmp_path):
    padded = sharded(tmp_path, [*range(10), 0, 1], 3)

    def outcome(padding: int) -> Outcome:
        declared = {"expected": "range(0, 10)", "padding": padding}
        return judge(padded, "expected_padding", **declared).outcome

    assert outcome(2) is Outcome.PASS
    assert outcome(1) is Outcome.FAIL


def test_dropped_samples_are_missing_under_exactly_once(tmp_path):
    report = judge(sharded(tmp_path, range(9), 3), expected="range(0, 10)")

    assert (kinds(report), names(report)) == (["missing"], [9])


def test_same_rank_duplicate_is_told_from_cross_rank_overlap(tmp_path):
    run = write_run(tmp_path, [epoch([0, 1, 0])], [epoch([2, 1, 3])])

    report = judge(run, expected="range(0, 4)")

    assert sorted(zip(kinds(report), names(report), strict=True)) == [
        ("duplicate", 0),
        ("overlap", 1),
    ]


def test_no_cross_rank_overlap_allows_what_one_rank_repeats(tmp_path):
    assert judge(
        write_run(tmp_path, [epoch([0, 0])], [epoch([1])]), "no_cross_rank_overlap"
    ).outcome is (Outcome.PASS)


def test_at_least_once_allows_repeats_and_not_gaps(tmp_path):
    run = write_run(tmp_path, [epoch([0, 1, 1, 3])])

    assert judge(run, "at_least_once", expected=(0, 1, 3)).outcome is Outcome.PASS
    assert names(judge(run, "at_least_once", expected="range(0, 4)")) == [2]


def test_an_unknown_universe_abstains(tmp_path):
    assert judge(write_run(tmp_path, [epoch([0, 1])])).outcome is Outcome.ABSTAIN


def test_nothing_observed_is_no_pass(tmp_path):
    run = write_run(tmp_path, [epoch(Batch([0, 1], trained=False))])

    assert judge(run, "no_cross_rank_overlap").outcome is Outcome.ABSTAIN


def test_two_good_epochs_are_judged_one_by_one(tmp_path):
    run = write_run(tmp_path, [epoch([0, 1, 2]), epoch([2, 0, 1])])

    assert judge(run, expected="range(0, 3)").outcome is Outcome.PASS
    assert judge(run, expected="range(0, 3)", scope="trace").outcome is Outcome.FAIL


def test_the_first_missing_sample_is_the_smallest_number(tmp_path):
    seen = [each for each in range(20) if each not in (4, 14)]

    assert names(judge(write_run(tmp_path, [epoch(seen)]), expected="range(0, 20)")) == [4, 14]


@pytest.mark.parametrize("ids", [np.int64([0, 1, 2]), np.uint8([0, 1, 2])])
def test_numpy_integers_are_ids(tmp_path, ids):
    run = write_run(tmp_path, [epoch(Batch(None, fields={"batch[row]": ids}))])

    report = judge(run, id="batch[row]", expected="range(0, 3)")

    assert report.outcome is Outcome.PASS


def test_a_truth_value_is_no_id(tmp_path):
    report = judge(write_run(tmp_path, [epoch([True, False])]), expected="range(0, 2)")

    assert report.outcome is Outcome.ABSTAIN
    assert report.doubts


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("policy = 'exactly_once'\nexpected = [1, 2, 1]", "coverage.expected"),
        ("policy = 'exactly_once'\nexpected = [1.5]", "coverage.expected"),
        ("policy = 'expected_padding'\npadding = -1", "coverage.padding"),
        ("policy = 'expected_padding'\npadding = 1.5", "coverage.padding"),
        ("policy = 'expected_padding'\npadding = true", "coverage.padding"),
        ("policy = 'sometimes'", "coverage.policy"),
    ],
)
def test_a_rule_that_declares_the_impossible_is_an_error(tmp_path, text, key):
    path = tmp_path / "policy.toml"
    path.write_text(f"[coverage]\n{text}\n")

    with pytest.raises(PolicyError, match=key):
        read_policy(path)


def test_options_that_declare_the_impossible_are_errors_too():
    with pytest.raises(PolicyError, match="--padding"):
        with_coverage_options(Policy(), rule="exactly_once", padding=1)
    with pytest.raises(PolicyError, match="names a sample twice"):
        with_coverage_options(Policy(), rule="exactly_once", expected="[1, 1]")


def test_an_unknown_worker_is_none(tmp_path):
    report = judge(write_run(tmp_path, [epoch([0, 0])]), Coverage("exactly_once", expected=(0,)))

    assert report.violations[0].seen.worker is None
