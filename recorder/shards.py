"""Shards: which part of a distributed tensor this process holds, from mesh and placements alone.

Nothing here is a collective: a rank that observes and one that does not may run side by side.
"""

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

_MOST_KNOWN = 1 << 14
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Unobservable(Exception):
    """The tensor has no values that could be read (meta, fake, a sum that is not made yet)."""


class Valueless(Unobservable):
    """The tensor has no values at all: it is a meta tensor."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The place of a shard in its tensor.

    Attributes:
        whole: Shape of the whole tensor.
        offset: Where in it the shard's first element is.
        layout: Placements and mesh, for people.
    """

    whole: tuple[int, ...]
    offset: tuple[int, ...]
    layout: str


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether a tensor is laid out over a mesh of processes."""
    return type(tensor) not in _PLAIN and hasattr(tensor, "placements")


def local_tensor(tensor: Any) -> torch.Tensor:
    """The part of a distributed tensor that is in this process, without a copy or a graph."""
    local = tensor._local_tensor
    if hasattr(local, "trigger_wait"):
        # A collective of the program may still write to it.
        local.trigger_wait()
        local = local.elem
    return local  # type: ignore[no-any-return]


class Shards:
    """Tells the places of shards; remembers them, holding no mesh alive."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[weakref.ref[Any], Shard | None]] = {}

    def of(self, tensor: Any, local: torch.Tensor) -> Shard | None:
        """The place of the local part of a distributed tensor; None where it is all of it.

        Raises:
            Unobservable: The local part is no box of elements of the whole.
        """
        mesh, placements = tensor.device_mesh, tuple(tensor.placements)
        key = id(mesh), tuple(tensor.shape), placements
        known = self._known.get(key)
        if known is not None and known[0]() is mesh:
            return known[1]
        found = _place(tuple(tensor.shape), mesh, placements, tuple(local.shape))
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = weakref.ref(mesh), found
        return found


def _place(
    whole: tuple[int, ...], mesh: Any, placements: Sequence[Any], local: tuple[int, ...]
) -> Shard | None:
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise Unobservable("a tensor of other processes")
    indices: list[Sequence[int]] = [range(size) for size in whole]
    for placement, count, mine in zip(placements, mesh.shape, coordinate, strict=True):
        if placement.is_partial():
            raise Unobservable("a partial sum over processes")
        dim = getattr(placement, "dim", None)
        if dim is not None:
            groups = getattr(placement, "split_factor", 1)
            indices[dim] = _share(indices[dim], int(groups), int(count), int(mine))
        elif not placement.is_replicate():
            raise Unobservable(f"laid out as {placement}")
    if tuple(map(len, indices)) != local or not all(map(_consecutive, indices)):
        raise Unobservable("a shard that is no box of the whole tensor")
    if local == whole:
        return None
    firsts = (each[0] if each else size for each, size in zip(indices, whole, strict=True))
    return Shard(whole, tuple(firsts), _layout(mesh, placements))


def _share(indices: Sequence[int], groups: int, count: int, mine: int) -> Sequence[int]:
    """This process's share of the indices along a dimension, as torch cuts them."""
    if groups == 1:
        return _chunk(indices, count, mine)
    shares = (_chunk(_chunk(indices, groups, group), count, mine) for group in range(groups))
    return [index for share in shares for index in share]


def _chunk(indices: Sequence[int], count: int, number: int) -> Sequence[int]:
    size = -(-len(indices) // count)
    return indices[number * size : (number + 1) * size]


def _consecutive(indices: Sequence[int]) -> bool:
    return isinstance(indices, range) or all(
        after == before + 1 for before, after in itertools.pairwise(indices)
    )


def _layout(mesh: Any, placements: Sequence[Any]) -> str:
    names = mesh.mesh_dim_names or [f"dim{number}" for number in range(len(placements))]
    return ", ".join(
        f"{placement!r} on {name}={size}"
        for placement, name, size in zip(placements, names, mesh.shape, strict=True)
    )
