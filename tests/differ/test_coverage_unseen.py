"""Coverage: what is not in view abstains, and fields of the batch that name samples."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampled import Batch, epoch, judge, kinds, names, write_rank, write_run

from traceparity.differ.result import Outcome

PASS, FAIL, ABSTAIN = Outcome.PASS, Outcome.FAIL, Outcome.ABSTAIN


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
