"""Sketches of shards: parts that make up a tensor have sketches that add up to its own."""

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard

from traceparity.recorder.shards import Shards, Unobservable
from traceparity.recorder.sketch import BLOCK, Sketcher

SKETCHER = Sketcher()


def sketch_of(tensor: torch.Tensor) -> torch.Tensor:
    return SKETCHER.sketch(tensor.contiguous().view(-1))


def cut(whole: tuple[int, ...], cuts: list[list[int]]) -> list[tuple[list[int], list[int]]]:
    """Sizes and offsets of the boxes between the cuts of each dimension."""
    bounds = [[0, *sorted(c for c in at if c < n), n] for n, at in zip(whole, cuts, strict=True)]
    spans = [list(itertools.pairwise(each)) for each in bounds]
    return [
        ([end - begin for begin, end in box], [begin for begin, _ in box])
        for box in itertools.product(*spans)
    ]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_sketches_of_all_boxes_add_up(data: st.DataObject) -> None:
    whole = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    cuts = [data.draw(st.lists(st.integers(1, 8), max_size=2, unique=True)) for _ in whole]
    tensor = torch.randn(whole, generator=torch.Generator().manual_seed(math.prod(whole)))
    total = torch.zeros(61)

    for sizes, offset in cut(whole, cuts):
        box = tensor[tuple(slice(o, o + s) for o, s in zip(offset, sizes, strict=True))]
        flat = box.contiguous().view(-1)
        total += SKETCHER.shard(flat, tuple(sizes), tuple(offset), whole)

    torch.testing.assert_close(total, sketch_of(tensor), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [1, 60, 61, 62, 200, 64 * 61, 64 * 61 + 1, 5000])
def test_small_tensors_have_the_same_sketch_by_the_shorter_way(count: int) -> None:
    flat = torch.randn(count, generator=torch.Generator().manual_seed(count))

    packed = torch.from_numpy(np.frombuffer(SKETCHER.packed(flat), np.float32).copy())

    torch.testing.assert_close(packed, SKETCHER.sketch(flat), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [7, 200])
def test_infinities_neither_warn_the_program_nor_raise_in_it(count: int) -> None:
    flat = torch.full((count,), math.inf)
    flat[::2] = -math.inf

    with np.errstate(all="raise"):
        packed = np.frombuffer(SKETCHER.packed(flat), np.float32)

    assert len(packed) == 61


@pytest.mark.parametrize("dim", [0, 1])
def test_shards_that_cross_blocks_add_up(dim: int) -> None:
    tensor = torch.randn(1001, 1700, generator=torch.Generator().manual_seed(0))
    assert tensor.numel() > 3 * BLOCK
    total, offset = torch.zeros(61), [0, 0]

    for part in tensor.chunk(3, dim):
        flat = part.contiguous().view(-1)
        total += SKETCHER.shard(flat, tuple(part.shape), tuple(offset), tuple(tensor.shape))
        offset[dim] += part.shape[dim]

    torch.testing.assert_close(total, sketch_of(tensor), rtol=1e-4, atol=1e-2)


class Mesh:
    """Like a mesh of processes, as seen by the one at a coordinate."""

    def __init__(self, shape: tuple[int, ...], coordinate: tuple[int, ...] | None) -> None:
        self.shape, self.mesh_dim_names = shape, tuple("xyz"[: len(shape)])
        self._coordinate = coordinate

    def get_coordinate(self) -> tuple[int, ...] | None:
        return self._coordinate


def place(shape: tuple[int, ...], mesh: Mesh, *placements: Any, local: tuple[int, ...]) -> Any:
    tensor = SimpleNamespace(shape=shape, device_mesh=mesh, placements=placements)
    return Shards().of(tensor, torch.empty(local))


def test_the_place_of_an_uneven_shard() -> None:
    found = place((5, 4), Mesh((3,), (1,)), Shard(0), local=(2, 4))

    assert (found.whole, found.offset) == ((5, 4), (2, 0))


def test_a_rank_past_the_end_holds_an_empty_shard() -> None:
    found = place((4,), Mesh((3,), (2,)), Shard(0), local=(0,))

    assert (found.whole, found.offset) == ((4,), (4,))


def test_a_dimension_cut_twice_from_the_right_to_the_left() -> None:
    """As `fully_shard` lays out what tensor parallelism has cut along the same dimension."""
    mesh = Mesh((2, 2), (0, 1))

    found = place((8,), mesh, _StridedShard(0, split_factor=2), Shard(0), local=(2,))

    assert found.offset == (4,)


def test_a_tensor_that_every_rank_holds_is_no_shard() -> None:
    assert place((4,), Mesh((2,), (1,)), Replicate(), local=(4,)) is None


@pytest.mark.parametrize(
    ("mesh", "placements", "local"),
    [
        (Mesh((2,), (0,)), [Partial()], (4,)),
        (Mesh((2,), None), [Shard(0)], (4,)),
        (Mesh((2,), (0,)), [Shard(0)], (3,)),
        (Mesh((2, 2), (0, 0)), [Shard(0), _StridedShard(0, split_factor=2)], (2,)),
    ],
    ids=["a partial sum", "of other processes", "of another size", "with gaps"],
)
def test_what_is_no_box_of_the_whole_is_not_observed(
    mesh: Mesh, placements: list[Any], local: tuple[int, ...]
) -> None:
    with pytest.raises(Unobservable):
        place((4,) if local != (2,) else (8,), mesh, *placements, local=local)
