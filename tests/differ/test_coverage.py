"""Coverage: the rules, what each violation is called and where it is."""

import numpy as np
import pytest
from sampled import Batch, epoch, judge, kinds, names, shard, sharded, write_rank, write_run

from traceparity.differ.coverage_json import coverage_data
from traceparity.differ.policy import Coverage
from traceparity.differ.result import Outcome

PASS, FAIL, ABSTAIN = Outcome.PASS, Outcome.FAIL, Outcome.ABSTAIN
TWELVE = "range(0, 12)"


TEN = [*range(10)]
SHUFFLED = [[7, 2, 9, 0, 11, 4, 1, 10, 3, 8, 5, 6], [3, 11, 0, 8, 6, 1, 9, 2, 5, 10, 4, 7]]
MATRIX = {
    "world 1, 12 ids": (1, range(12), Coverage("exactly_once", expected=TWELVE), PASS, None),
    "world 2, 12 ids": (2, range(12), Coverage("exactly_once", expected=TWELVE), PASS, None),
    "world 3, 12 ids": (3, range(12), Coverage("exactly_once", expected=TWELVE), PASS, None),
    "world 4, 12 ids": (4, range(12), Coverage("exactly_once", expected=TWELVE), PASS, None),
    "10 ids on 3 ranks, padded with 2": (
        3, [*TEN, 0, 1],
        Coverage("expected_padding", expected="range(0, 10)", padding=2), PASS, None,
    ),
    "10 ids on 3 ranks, the last ones dropped": (
        3, TEN[:9], Coverage("exactly_once", expected="range(0, 10)"), FAIL, "missing",
    ),
    "a duplicate on the same rank": (
        2, [0, 1, 2, 3, 0, 5], Coverage("exactly_once", expected=(0, 1, 2, 3, 5)),
        FAIL, "duplicate",
    ),
    "a duplicate on the same rank is no overlap": (
        2, [0, 1, 2, 3, 0, 5], Coverage("no_cross_rank_overlap"), PASS, None,
    ),
    "an overlap of two ranks": (
        2, [0, 1, 2, 0, 4, 5], Coverage("no_cross_rank_overlap"), FAIL, "overlap",
    ),
    "a missing id under at-least-once": (
        2, [0, 1, 3], Coverage("at_least_once", expected="range(0, 4)"), FAIL, "missing",
    ),
    "padding of 1 where 2 is declared": (
        3, [*TEN, 0], Coverage("expected_padding", expected="range(0, 10)", padding=2),
        FAIL, "padding",
    ),
    "a custom sampler": (
        2, [0, 2, 4, 6, 1, 3, 5, 7], Coverage("exactly_once", expected="range(0, 8)"), PASS, None,
    ),
    "a finite iterable dataset": (
        2, [3, 1, 2, 0], Coverage("exactly_once", id="batch[row]", expected="range(0, 4)"),
        PASS, None,
    ),
    "an unknown universe": (2, [0, 1, 2, 3], Coverage("exactly_once"), ABSTAIN, None),
    "repeats under at-least-once": (
        2, [0, 1, 0, 1, 2, 2], Coverage("at_least_once", expected="range(0, 3)"), PASS, None,
    ),
    "a shuffled epoch 0": (
        2, SHUFFLED[0], Coverage("exactly_once", expected=TWELVE), PASS, None,
    ),
    "a shuffled epoch 1": (
        2, SHUFFLED[1], Coverage("exactly_once", expected=TWELVE), PASS, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("world", "ids", "coverage", "outcome", "kind"), MATRIX.values(), ids=MATRIX.keys()
)
def test_coverage_matrix(tmp_path, world, ids, coverage, outcome, kind):
    """The 17 rows of the existing checker's validation come out as there."""
    if coverage.id == "sampler":
        path = sharded(tmp_path, list(ids), world)
    else:
        ranks = [
            [
                epoch(
                    *(
                        Batch(None, fields={"batch[row]": np.array(part)})
                        for part in shard(list(ids), rank, world)
                    )
                )
            ]
            for rank in range(world)
        ]
        path = write_run(tmp_path, *ranks)

    report = judge(path, coverage)

    assert report.outcome is outcome
    assert (kinds(report) or [None])[0] == kind


def test_exactly_once_names_the_earliest_of_unexpected_and_repeated_samples_first(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1], [99, 1], [2])])

    report = judge(path, expected="range(0, 4)")

    assert kinds(report) == ["unexpected", "duplicate", "missing"]
    assert names(report) == [99, 1, 3]
    assert report.violations_total == 3


def test_exactly_once_calls_a_repeat_a_duplicate_only_if_that_rank_had_it(tmp_path):
    """Sample 1 is rank 0's; rank 1 has it too and then again."""
    path = write_run(tmp_path, [epoch([1], [2])], [epoch([1], [1])])

    report = judge(path, expected=(1, 2))

    assert [(found.kind, found.seen.rank) for found in report.violations] == [
        ("overlap", 1),
        ("duplicate", 1),
    ]


def test_at_least_once_counts_repeats_and_allows_them(tmp_path):
    path = write_run(tmp_path, [epoch([0, 0], [1, 0])])

    report = judge(path, "at_least_once", expected=(0, 1))

    assert report.outcome is PASS
    counts = report.scopes[0].counts
    assert (counts.observations, counts.unique, counts.repeated, counts.duplicates) == (4, 2, 1, 2)


def test_at_least_once_names_unexpected_samples_before_missing_ones(tmp_path):
    path = write_run(tmp_path, [epoch([7], [1])])

    assert kinds(judge(path, "at_least_once", expected=(0, 1))) == ["unexpected", "missing"]


def test_no_cross_rank_overlap_needs_no_universe_and_names_who_had_it_first(tmp_path):
    path = write_run(tmp_path, [epoch([5], [6])], [epoch([7], [5])])

    report = judge(path, "no_cross_rank_overlap")

    (found,) = report.violations
    assert (found.kind, found.sample_id, found.seen.rank, found.seen.position) == (
        "overlap", 5, 1, 1,
    )  # fmt: skip
    assert (found.before.rank, found.before.position, found.before.step) == (0, 0, 0)


def test_no_cross_rank_overlap_calls_every_repeat_on_another_rank_an_overlap(tmp_path):
    path = write_run(tmp_path, [epoch([5])], [epoch([5, 5])])

    assert kinds(judge(path, "no_cross_rank_overlap")) == ["overlap", "overlap"]


def test_expected_padding_names_unexpected_missing_and_then_the_surplus(tmp_path):
    path = write_run(tmp_path, [epoch([0, 9], [0, 0], [2])])

    report = judge(path, "expected_padding", expected="range(0, 3)", padding=1)

    assert kinds(report) == ["unexpected", "missing", "padding"]
    assert names(report) == [9, 1, None]
    assert report.violations[-1].surplus == 2


@pytest.mark.parametrize(("declared", "outcome"), [(0, FAIL), (1, FAIL), (2, PASS), (3, FAIL)])
def test_expected_padding_holds_for_exactly_the_declared_surplus(tmp_path, declared, outcome):
    path = sharded(tmp_path, [*range(10), 0, 1], 3)

    report = judge(path, "expected_padding", expected="range(0, 10)", padding=declared)

    assert report.outcome is outcome


def test_first_missing_is_first_by_number_and_not_by_text(tmp_path):
    path = write_run(tmp_path, [epoch([n for n in range(20) if n not in (14, 4)])])

    assert names(judge(path, expected="range(0, 20)")) == [4, 14]


def test_missing_texts_come_in_natural_order_after_numbers(tmp_path):
    path = write_run(tmp_path, [epoch(["row1"])])

    report = judge(path, expected=("row14", "row1", "row4", 3))

    assert names(report) == [3, "row4", "row14"]


def test_the_number_0_and_the_text_0_are_different_samples(tmp_path):
    path = write_run(tmp_path, [epoch([0, "0"])])

    assert judge(path, expected=(0, "0")).outcome is PASS
    assert kinds(judge(path, expected=(0,))) == ["unexpected"]


def test_numpy_integers_and_tensors_of_one_element_are_ids(tmp_path):
    fields = [{"batch[row]": np.array(value, dtype)} for value, dtype in ((3, "u1"), (4, "i8"))]
    path = write_run(tmp_path, [epoch(*(Batch(None, fields=each) for each in fields))])

    assert judge(path, id="batch[row]", expected=(3, 4)).outcome is PASS


def test_ids_beyond_62_bits_and_lists_are_ids(tmp_path):
    ids = [1 << 63, -(1 << 63), [0, "a"], [0, "b"]]
    path = write_run(tmp_path, [epoch(ids, [1 << 63])])

    report = judge(path, "at_least_once")
    overlap = judge(path, "exactly_once", expected=(1 << 63,))

    assert report.outcome is ABSTAIN
    assert ("duplicate", 1 << 63) in zip(kinds(overlap), names(overlap), strict=True)
    assert ("unexpected", [0, "a"]) in zip(kinds(overlap), names(overlap), strict=True)


def test_an_empty_universe_is_a_universe(tmp_path):
    path = write_run(tmp_path, [epoch([0])])

    assert kinds(judge(path, expected="range(0, 0)")) == ["unexpected"]


def test_position_counts_the_samples_of_the_rank_and_ranks_take_turns_by_step(tmp_path):
    """Rank 1 has sample 3 in step 0, so rank 0's in step 1 is the later one."""
    path = write_run(tmp_path, [epoch([0, 1], [2, 3])], [epoch([3, 4], [5, 6])])

    (found,) = judge(path, expected="range(0, 7)").violations

    assert (found.seen.rank, found.seen.step, found.seen.position) == (0, 1, 3)
    assert (found.before.rank, found.before.step, found.before.position) == (1, 0, 0)


def test_worker_and_step_of_a_violation_are_those_recorded(tmp_path):
    path = write_run(tmp_path, [epoch(Batch([0], worker=1), Batch([0], worker=0))])

    (found,) = judge(path, expected=(0,)).violations

    assert (found.seen.worker, found.before.worker) == (0, 1)
    assert coverage_data(judge(path, expected=(0,)))["violations"] == [
        {
            "kind": "duplicate", "sample_id": 0, "rank": 0, "epoch": 0, "position": 1, "step": 1,
            "worker": 0, "loader": "loader[0]", "surplus": None, "why": None,
            "first_seen": {"rank": 0, "position": 0, "step": 0, "worker": 1},
        }
    ]  # fmt: skip


def test_an_unknown_worker_is_none_and_never_0(tmp_path):
    path = write_run(tmp_path, [epoch([0], [0])])

    assert judge(path, expected=(0,)).violations[0].seen.worker is None


def test_all_violations_are_counted_and_some_are_told(tmp_path):
    path = write_run(tmp_path, [epoch([7] * 1000)])

    report = judge(path, expected="range(0, 5000)")

    assert report.violations_total == 999 + 4999
    assert (kinds(report).count("duplicate"), kinds(report).count("missing")) == (100, 100)


def test_a_single_file_of_a_run_is_the_rank_of_its_header(tmp_path):
    path = write_rank(tmp_path / "rank3.trace", [epoch([0], [0])], rank=3, world=1)

    assert judge(path, expected=(0,)).violations[0].seen.rank == 3
