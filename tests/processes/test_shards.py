"""Sharded tensors are recorded part by part, each with its place, and nothing is gathered."""

from collections.abc import Callable

import pytest
import torch.distributed as dist
from parallel_trainings import fully_sharded, hybrid, sharded_both_ways, tensor_parallel
from ranks import Ranks, digest_of_state
from torch import nn

from traceparity.tracefmt.reader import Trace, open_trace
from traceparity.tracefmt.records import Flag, Kind, Phase, ProcessGroup

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")


def places(trace: Trace, phase: Phase) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Sizes, place and whole shape of the tensors of a phase of step 0, by component and field."""
    columns = trace.columns(0)
    found = {}
    for row in range(len(columns)):
        site = trace.sites[columns.site[row]].site
        if site.phase == phase and columns.kind[row] == Kind.TENSOR:
            numbers = columns.shape[row], columns.offset[row], columns.whole[row]
            found[f"{site.component} {site.field}"] = tuple(trace.shapes[n] for n in numbers)
            assert bool(columns.flags[row] & Flag.SHARDED) == bool(columns.layout[row])
    return found


def test_parameters_gradients_and_optimizer_state_have_their_places(ranks: Ranks) -> None:
    folder = ranks.run("sharded", 2, fully_sharded)

    with open_trace(folder / "rank0.trace") as first, open_trace(folder / "rank1.trace") as second:
        assert places(first, Phase.GRADIENT)["0.weight grad"] == ((5, 6), (0, 0), (10, 6))
        assert places(second, Phase.GRADIENT)["0.weight grad"] == ((5, 6), (5, 0), (10, 6))
        updated = places(second, Phase.OPTIMIZER)
        assert updated["2.bias value"] == ((1,), (2,), (3,))
        assert updated["optimizer[0] exp_avg[2.weight]"] == ((1, 10), (2, 0), (3, 10))
        # What a layer computes with is whole, and the batches are the process's own.
        assert places(second, Phase.FORWARD)["0 output[0]"] == ((4, 10), (), ())
        assert second.header.groups[0] == ProcessGroup("default_pg", (0, 1), "gloo")
        assert (second.header.rank, second.header.world_size) == (1, 2)
        assert second.complete


def test_a_column_of_a_weight_has_its_place(ranks: Ranks) -> None:
    folder = ranks.run("columns", 2, tensor_parallel)

    with open_trace(folder / "rank1.trace") as trace:
        updated = places(trace, Phase.OPTIMIZER)
        assert updated["2.weight value"] == ((3, 5), (0, 5), (3, 10))
        assert updated["2.bias value"] == ((3,), (), ())
        unseen = [note.reason for note in trace.not_observed]
        assert any("a partial sum over processes" in reason for reason in unseen)


@pytest.mark.parametrize(
    ("training", "world"),
    [(fully_sharded, 2), (tensor_parallel, 2), (sharded_both_ways, 4), (hybrid, 4)],
)
def test_recording_changes_no_bit_of_a_sharded_training(
    training: Callable[[], nn.Module], world: int, ranks: Ranks
) -> None:
    def told(name: str) -> Callable[[], None]:
        folder = ranks.folder / name
        folder.mkdir()

        def body() -> None:
            (folder / str(dist.get_rank())).write_text(digest_of_state(training()))

        return body

    ranks.plain("plain", world, told("plain"))
    ranks.run("recorded", world, told("recorded"))

    for rank in range(world):
        texts = [(ranks.folder / name / str(rank)).read_text() for name in ("plain", "recorded")]
        assert texts[0] == texts[1]
