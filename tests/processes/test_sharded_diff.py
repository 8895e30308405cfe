"""Sharded runs are compared with unsharded and differently sharded ones, part by part."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from parallel_trainings import (
    alone,
    batches,
    fit,
    fully_sharded,
    fully_sharded_network,
    hybrid,
    replicated,
    sharded_both_ways,
    tensor_parallel,
)
from ranks import Ranks
from torch import nn

from traceparity.differ.result import Outcome

SHARDED = """
[align]
ranks = "sharded"

[[compare]]
site = "*"
rel_l2 = 1e-4

[[compare]]
site = "*:optimizer[*] group[*"
"""
VALUES = SHARDED.replace("rel_l2 = 1e-4", "rtol = 1e-4\natol = 1e-6")
EXACT = '[align]\nranks = "sharded"\nphases = ["state"]\n'

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")


@pytest.fixture(scope="module")
def runs(shared_ranks: Ranks) -> dict[str, Path]:
    """One training, its work shared in each way."""
    ranks = shared_ranks
    return {
        "alone": ranks.alone("alone", alone),
        "replicated": ranks.run("replicated", 2, replicated),
        "two": ranks.run("two", 2, fully_sharded),
        "four": ranks.run("four", 4, fully_sharded),
        "columns": ranks.run("columns", 2, tensor_parallel),
        "both": ranks.run("both", 4, sharded_both_ways),
        "hybrid": ranks.run("hybrid", 4, hybrid),
    }


@pytest.mark.parametrize(
    "pair",
    [
        "alone two", "alone four", "alone columns", "alone both", "two four", "four two",
        "columns two", "both columns", "replicated four", "two alone",
        "alone hybrid",
    ],
)  # fmt: skip
def test_one_training_is_equal_however_it_is_sharded(
    pair: str, runs: dict[str, Path], shared_ranks: Ranks
) -> None:
    """By the sketches of the parts, which add up."""
    reference, target = (runs[name] for name in pair.split())

    result = shared_ranks.diff(reference, target, SHARDED)

    assert result.outcome is Outcome.PASS, result.reason
    assert result.compared.undecided == 0
    assert result.compared.steps >= 3


def test_runs_that_are_sharded_alike_are_compared_to_the_bit(
    runs: dict[str, Path], shared_ranks: Ranks
) -> None:
    again = shared_ranks.run("again", 2, fully_sharded)

    assert shared_ranks.diff(runs["two"], again, "").outcome is Outcome.PASS
    together = shared_ranks.diff(runs["two"], again, '[align]\nranks = "sharded"\n')
    assert together.outcome is Outcome.PASS


def test_what_was_not_kept_is_not_known_to_be_equal_to_the_bit(
    runs: dict[str, Path], shared_ranks: Ranks
) -> None:
    result = shared_ranks.diff(runs["alone"], runs["two"], EXACT)

    assert result.outcome is Outcome.ABSTAIN
    assert "record both runs again with values" in result.reason


def test_a_run_without_one_of_its_ranks_is_not_judged(
    runs: dict[str, Path], shared_ranks: Ranks
) -> None:
    folder = shared_ranks.folder / "half.trace"
    folder.mkdir()
    (folder / "rank0.trace").write_bytes((runs["two"] / "rank0.trace").read_bytes())

    result = shared_ranks.diff(runs["alone"], folder, SHARDED)

    assert result.outcome is Outcome.ABSTAIN
    assert "1 of 2 ranks" in result.reason


def test_kept_values_are_put_together(ranks: Ranks) -> None:
    """Elementwise, and to the bit for what both runs start from."""
    reference = ranks.alone("alone", alone, capture="values")
    for name, training in {"rows": fully_sharded, "columns": tensor_parallel}.items():
        target = ranks.run(name, 2, training, capture="values")

        assert ranks.diff(reference, target, VALUES).outcome is Outcome.PASS
        assert ranks.diff(reference, target, EXACT).outcome is Outcome.PASS


def one_element(*, rank: int, step: int, what: str) -> Callable[[], nn.Module]:
    """The training with one element of one rank's shard changed: of the gradient, or afterwards."""

    def training() -> nn.Module:
        model = fully_sharded_network()
        weight: Any = model[0].weight

        def spoil(now: int) -> None:
            if now == step and dist.get_rank() == rank:
                held = weight.grad if what == "gradient" else weight.detach()
                held._local_tensor[-1, -1] += 0.5

        when = "before_update" if what == "gradient" else "after_update"
        return fit(model, batches(dist.get_rank(), dist.get_world_size()), **{when: spoil})

    return training


def test_a_shard_that_changed_on_one_rank_between_updates_is_found(
    runs: dict[str, Path], ranks: Ranks
) -> None:
    """The other rank has no news of the parameter: its shard is as it was."""
    target = ranks.run("faulty", 2, one_element(rank=1, step=0, what="parameter"))

    first = ranks.diff(runs["alone"], target, SHARDED).first

    assert first is not None
    assert (first.step, first.phase, first.component) == (1, "state", "0.weight")


@pytest.mark.parametrize("capture", ["sketch", "values"])
def test_a_fault_in_one_shard_is_found_at_its_place(
    capture: str, runs: dict[str, Path], ranks: Ranks
) -> None:
    reference = runs["alone"]
    if capture == "values":
        reference = ranks.alone("values", alone, capture=capture)
    fault = one_element(rank=1, step=1, what="gradient")
    target = ranks.run("faulty", 2, fault, capture=capture)

    first = ranks.diff(reference, target, VALUES if capture == "values" else SHARDED).first

    assert first is not None
    assert (first.step, first.phase, first.component) == (1, "gradient", "0.weight")
    assert first.kind == "value"
    if capture == "values":
        assert first.metrics.max_abs == pytest.approx(0.5, rel=1e-3)


def test_ranks_that_hold_unequal_ones_of_one_shard_are_named(
    runs: dict[str, Path], ranks: Ranks
) -> None:
    def drifted() -> nn.Module:
        def drift(step: int, model: Any) -> None:
            if step == 0 and dist.get_rank() == 3:
                model[0].weight.detach()._local_tensor[0, 0] += 1e-6

        return hybrid(drift)

    result = ranks.diff(runs["alone"], ranks.run("drifted", 4, drifted), SHARDED)

    assert result.outcome is Outcome.ABSTAIN
    assert "in step 1 ranks 1 and 3 have unequal shards of state:0.weight:value" in result.reason


def test_equal_bytes_in_another_place_are_no_equal_tensors(ranks: Ranks) -> None:
    """Shards of one shape that lie in another order hold another tensor."""

    def exchanged() -> nn.Module:
        with mock.patch("parallel_trainings.network", swapped):
            return fully_sharded()

    def swapped() -> nn.Sequential:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))
        with torch.no_grad():
            first = model[0].weight
            first.copy_(torch.cat([first[5:], first[:5]]))
        return model

    reference = ranks.run("straight", 2, fully_sharded)
    target = ranks.run("exchanged", 2, exchanged)

    first = ranks.diff(reference, target, SHARDED).first

    assert first is not None
    assert (first.step, first.phase, first.component) == (0, "state", "0.weight")
