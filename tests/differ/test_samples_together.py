"""Samples of a step, counted over all ranks: the relations `replicated` and `sharded`."""

import pytest
from sampled import Batch, epoch, write_run

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import PHASES, Align, Policy
from traceparity.differ.result import Outcome


def compare(tmp_path, reference, *ranks, relation="replicated", **options):
    """Compare the batches of one process with those of several."""
    folders = [tmp_path / "one", tmp_path / "many"]
    for folder in folders:
        folder.mkdir()
    ours = write_run(folders[0], [epoch(*reference)], **options)
    theirs = write_run(folders[1], *([epoch(*batches)] for batches in ranks))
    return diff_runs(ours, [theirs], Policy(Align(ranks=relation)))


@pytest.mark.parametrize("relation", ["replicated", "sharded"])
def test_samples_may_be_on_any_rank_and_in_any_order(tmp_path, relation):
    result = compare(
        tmp_path, [[0, 1, 2, 3], [4, 5, 6, 7]], [[3, 1], [7, 4]], [[0, 2], [5, 6]],
        relation=relation,
    )  # fmt: skip

    assert result.outcome is Outcome.PASS
    assert result.compared.observations == 2


def test_a_sample_of_another_step_is_found_with_its_rank(tmp_path):
    result = compare(tmp_path, [[0, 1], [2, 3]], [[0], [2]], [[1], [1]])

    assert (result.first.step, result.first.phase, result.first.rank) == (1, "data", 1)
    assert (result.first.component, result.first.kind) == ("loader[0]", "sample_id")
    assert result.first.evidence[0].detail == (
        "only in the reference: [3] (first on rank 0); only in the target: [1] (first on rank 1)"
    )


def test_a_sample_that_is_used_twice_is_no_single_one(tmp_path):
    assert compare(tmp_path, [[0, 1]], [[0, 1]], [[1, 2]]).outcome is Outcome.FAIL


def test_a_batch_that_every_rank_has_counts_once(tmp_path):
    """As where a model is cut over the ranks and not the batch."""
    result = compare(tmp_path, [[0, 1], [2, 3]], [[0, 1], [2, 3]], [[0, 1], [2, 3]])

    assert result.outcome is Outcome.PASS


def test_batches_that_were_not_trained_on_do_not_count(tmp_path):
    skipped = Batch([8, 9], trained=False)

    result = compare(tmp_path, [[0, 1], [2, 3]], [[0], [2, 3]], [[1], skipped])

    assert result.outcome is Outcome.PASS


def test_unknown_samples_are_not_counted(tmp_path):
    result = compare(tmp_path, [Batch(None)], [Batch(None)], [Batch(None)])

    assert result.outcome is Outcome.ABSTAIN
    assert "not known on all ranks" in result.reason


def test_a_run_that_recorded_no_batches_is_not_judged_by_them(tmp_path):
    phases = {"phases": [phase for phase in PHASES if phase != "data"]}

    result = compare(tmp_path, [[0, 1]], [[0]], [[1]], capture=phases)

    assert result.outcome is Outcome.ABSTAIN
    assert "did not record the phase data" in result.reason
