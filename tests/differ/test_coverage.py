"""Coverage: the rules, what each violation is called and where, and what cannot be judged."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampled import Batch, Epoch, epoch, write_rank, write_run

from traceparity.differ import coverage_text
from traceparity.differ.coverage import judge_coverage
from traceparity.differ.coverage_json import coverage_data
from traceparity.differ.coverage_report import CoverageReport
from traceparity.differ.policy import Coverage
from traceparity.differ.result import Outcome
from traceparity.tracefmt.reader import open_run

PASS, FAIL, ABSTAIN = Outcome.PASS, Outcome.FAIL, Outcome.ABSTAIN
TWELVE = "range(0, 12)"


def judge(path: Path, rule: str | Coverage = "exactly_once", **options: Any) -> CoverageReport:
    coverage = rule if isinstance(rule, Coverage) else Coverage(rule, **options)
    return judge_parts([path], coverage)


def judge_parts(
    paths: Sequence[Path], coverage: Coverage, reference: Path | None = None, **options: Any
) -> CoverageReport:
    with contextlib.ExitStack() as stack:
        runs = [open_run(path) for path in (*paths, *([reference] if reference else []))]
        for trace in (trace for run in runs for trace in run.values()):
            stack.enter_context(trace)
        known = runs[-1] if reference else None
        return judge_coverage(runs[: len(paths)], coverage, reference=known, **options)


def shard(ids: Sequence[Any], rank: int, world: int, size: int = 2) -> list[list[Any]]:
    """A rank's share of some samples, in batches."""
    own = list(ids[rank::world])
    return [own[at : at + size] for at in range(0, len(own), size)]


def sharded(tmp_path: Path, ids: Sequence[Any], world: int, **facts: Any) -> Path:
    return write_run(
        tmp_path, *([epoch(*shard(ids, rank, world), **facts)] for rank in range(world))
    )


def kinds(report: CoverageReport) -> list[str]:
    return [found.kind for found in report.violations]


def names(report: CoverageReport) -> list[Any]:
    return [found.sample_id for found in report.violations]


# ---------------------------------------------------------------- the matrix of 17 rows

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


# ---------------------------------------------------------------- each rule, by its own words


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


# ---------------------------------------------------------------- where a violation is


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
            "worker": 0, "loader": "loader[0]", "surplus": None,
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


# ---------------------------------------------------------------- epochs and scopes


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


# ---------------------------------------------------------------- the universe


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


# ---------------------------------------------------------------- what is not in view


def test_no_batch_at_all_abstains_under_every_rule(tmp_path):
    """The existing checker passes an empty list of observations."""
    path = write_run(tmp_path, [epoch(Batch([0], trained=False, loader="loader"))])

    for rule in ("exactly_once", "at_least_once", "no_cross_rank_overlap"):
        report = judge(path, rule)

        assert report.outcome is ABSTAIN
        assert "no batch" in report.doubts[0]


def test_unknown_ids_abstain_and_name_the_fields_that_may_tell(tmp_path):
    batch = Batch(None, fields={"batch[row]": np.array([1]), "batch[text][0]": "a"})
    path = write_run(tmp_path, [epoch(batch)])

    report = judge(path, expected=(1,))

    assert report.outcome is ABSTAIN
    assert "batch[row], batch[text]" in report.doubts[0]


def test_some_unknown_ids_leave_known_violations_standing(tmp_path):
    path = write_run(tmp_path, [epoch([0], None, [0])])

    report = judge(path, expected=(0, 1))

    assert report.outcome is FAIL
    assert kinds(report) == ["duplicate"]
    assert report.doubts


@pytest.mark.parametrize("ids", [[1.5], [True], [None], [{"a": 1}]])
def test_what_is_no_number_or_text_is_no_id(tmp_path, ids):
    path = write_run(tmp_path, [epoch(ids)])

    assert judge(path, expected=(1,)).outcome is ABSTAIN


def test_an_epoch_that_the_run_left_lacks_nothing_for_certain(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1], [2]), epoch([1, 2], ended=False)])

    report = judge(path, expected="range(0, 3)")

    assert report.outcome is ABSTAIN
    assert "1 sample of epoch 1" in report.doubts[0]
    assert "the run ended inside it, after 1 batches" in report.doubts[0]


def test_an_epoch_that_the_run_left_still_has_the_violations_that_it_has(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1], [1], ended=False)])

    report = judge(path, expected="range(0, 3)")

    assert (report.outcome, kinds(report)) == (FAIL, ["duplicate"])


def test_an_epoch_that_the_run_left_after_its_last_sample_is_whole(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1], [2], ended=False)])

    assert judge(path, expected="range(0, 3)").outcome is PASS


def test_an_epoch_left_for_the_next_one_lacks_what_it_lacks(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1], ended=False), epoch([0, 1], [2])])

    report = judge(path, expected="range(0, 3)")

    assert [(found.kind, found.epoch) for found in report.violations] == [("missing", 0)]


def test_without_recorded_ends_the_longest_of_several_epochs_tells_a_whole_one(tmp_path):
    """A loop that asks for exactly as many batches as there are never sees the end."""
    epochs = [epoch([0], [1], ended=False) for _ in range(3)]
    path = write_run(tmp_path, epochs)

    assert kinds(judge(path, expected="range(0, 3)")) == ["missing"] * 3


def test_a_rank_that_never_began_the_last_epoch_leaves_it_open(tmp_path):
    path = write_run(tmp_path, [epoch([0]), epoch([0])], [epoch([1])])

    report = judge(path, expected=(0, 1))

    assert report.outcome is ABSTAIN
    assert "before it began on rank 1" in report.doubts[0]


def test_a_killed_run_abstains_and_never_passes(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1]), epoch([1], ended=False)], complete=False)

    report = judge(path, expected=(0, 1))

    assert report.outcome is ABSTAIN
    assert "incomplete (killed)" in report.doubts[0]
    assert judge(path, "no_cross_rank_overlap").outcome is ABSTAIN


def test_a_killed_run_still_has_the_violations_that_it_has(tmp_path):
    path = write_run(tmp_path, [epoch([0, 0], ended=False)], complete=False)

    assert kinds(judge(path, expected=(0, 1))) == ["duplicate"]


def test_a_missing_rank_abstains(tmp_path):
    path = write_rank(tmp_path / "rank0.trace", [epoch([0])], world=2)

    report = judge(path, expected=(0, 1))

    assert report.outcome is ABSTAIN
    assert "2 ranks and 1 rank is here" in report.doubts[0]


@pytest.mark.parametrize("capture", [{"steps": [[0, 2]]}, {"every": 10}])
def test_a_choice_of_steps_abstains(tmp_path, capture):
    path = write_run(tmp_path, [epoch([0])], capture=capture)

    assert judge(path, expected=(0, 1)).outcome is ABSTAIN


def test_a_recording_without_the_phase_data_says_so(tmp_path):
    path = write_run(
        tmp_path,
        [epoch(Batch([0], loader="model"))],
        capture={"phases": ["forward"]},
    )

    assert "--phases" in judge(path, expected=(0,)).doubts[0]


def test_excluded_ids_are_named_as_the_reason(tmp_path):
    path = write_run(
        tmp_path, [epoch([0])], leave_out=["sample_ids"], capture={"exclude": ["*:sample_ids"]}
    )

    assert "--exclude" in judge(path, expected=(0,)).doubts[0]


def test_without_recorded_epochs_only_the_whole_trace_is_judged(tmp_path):
    path = write_run(tmp_path, [epoch([0, 1])], leave_out=["epoch"])

    report = judge(path, expected=(0, 1))

    assert report.outcome is ABSTAIN
    assert 'scope = "trace"' in report.doubts[0]
    assert judge(path, expected=(0, 1), scope="trace").outcome is PASS


# ---------------------------------------------------------------- runs that went on


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


# ---------------------------------------------------------------- fields of the batch


def fields_run(tmp_path: Path, *fields: dict[str, Any], **facts: Any) -> Path:
    return write_run(tmp_path, [epoch(*(Batch(None, fields=each, **facts) for each in fields))])


def test_a_list_of_texts_in_the_batch_names_samples(tmp_path):
    path = fields_run(
        tmp_path,
        {"batch[name][0]": "a", "batch[name][1]": "b", "batch[x]": np.zeros(2)},
        {"batch[name][0]": "b", "batch[x]": np.zeros(1)},
    )

    report = judge(path, id="batch[name]", expected=("a", "b"))

    assert (kinds(report), names(report)) == (["duplicate"], ["b"])


def test_a_column_of_ids_is_as_good_as_a_row(tmp_path):
    path = fields_run(tmp_path, {"batch[row]": np.array([[1], [2]])})

    assert judge(path, id="batch[row]", expected=(1, 2)).outcome is PASS


@pytest.mark.parametrize(
    "value", [np.array([0.5]), np.array([True]), np.array([[1, 2], [3, 4]]), 1.5, None]
)
def test_a_field_that_names_no_samples_abstains_and_says_why(tmp_path, value):
    path = fields_run(tmp_path, {"batch[row]": value})

    report = judge(path, id="batch[row]", expected=(1,))

    assert report.outcome is ABSTAIN
    assert "batch[row]" in report.doubts[0]


def test_a_field_that_no_batch_has_abstains_and_names_the_others(tmp_path):
    path = fields_run(tmp_path, {"batch[row]": np.array([1])})

    report = judge(path, id="batch[rwo]", expected=(1,))

    assert report.outcome is ABSTAIN
    assert "batch[rwo]" in report.doubts[0]
    assert "batch[row]" in report.doubts[0]


def test_a_list_as_long_as_the_recorder_looks_is_not_trusted(tmp_path):
    path = fields_run(tmp_path, {f"batch[name][{n}]": f"s{n}" for n in range(512)})

    assert judge(path, id="batch[name]").outcome is ABSTAIN


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_a_digest_equal_to_that_of_the_samplers_ids_proves_the_field(tmp_path, dtype):
    """Without kept values the field is known all the same, and so is its universe."""
    ids = [[3, 0, 2], [1]]
    batches = [
        Batch(part, fields={"batch[row]": np.array(part, dtype)}, keeps=False, length=4)
        for part in ids
    ]
    path = write_run(tmp_path, [epoch(*batches)])

    assert judge(path, id="batch[row]").outcome is PASS


def test_a_digest_of_something_else_abstains_with_the_command_that_helps(tmp_path):
    batch = Batch([0, 1], fields={"batch[row]": np.array([5, 6])}, keeps=False)
    path = write_run(tmp_path, [epoch(batch)])

    report = judge(path, id="batch[row]", expected=(5, 6))

    assert report.outcome is ABSTAIN
    assert "tp-record" in report.doubts[0]
    assert "--capture values" in report.doubts[0]
    assert "--steps" not in report.doubts[0]


def test_a_field_with_other_values_than_the_samplers_has_no_universe_of_the_dataset(tmp_path):
    batch = Batch([0, 1], fields={"batch[row]": np.array([50, 51])}, length=2)
    path = write_run(tmp_path, [epoch(batch)])

    assert judge(path, id="batch[row]").outcome is ABSTAIN
    assert judge(path, id="batch[row]", expected=(50, 51)).outcome is PASS
