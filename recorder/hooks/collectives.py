"""Collectives that the program issues: what it gives to other processes and what it gets.

Those that torch issues itself (the reducer of DDP, `fully_shard`, distributed tensors, collectives
of objects) are no calls of the program and are left alone. Nothing waits here: the result of an
asynchronous call is seen when the program has waited for it.
"""

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import torch

from traceparity.recorder.exchanges import Exchanges
from traceparity.recorder.patches import Patches

# Parameters that hold what is given, and what is received; a root says which rank gives or gets.
_TENSORS = {
    "all_reduce": ("tensor", "tensor"),
    "reduce": ("tensor", "tensor"),
    "broadcast": ("tensor", "tensor"),
    "all_gather": ("tensor", "tensor_list"),
    "all_gather_into_tensor": ("input_tensor", "output_tensor"),
    "all_gather_single": ("input_tensor", "output_tensor"),
    "gather": ("tensor", "gather_list"),
    "scatter": ("scatter_list", "tensor"),
    "reduce_scatter": ("input_list", "output"),
    "reduce_scatter_tensor": ("input", "output"),
    "reduce_scatter_single": ("input", "output"),
    "all_to_all": ("input_tensor_list", "output_tensor_list"),
    "all_to_all_single": ("input", "output"),
}
_MARKERS = (
    "barrier", "monitored_barrier", "all_gather_object", "gather_object", "scatter_object_list",
    "broadcast_object_list", "send_object_list", "recv_object_list",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Collective:
    """A function of `torch.distributed`.

    Attributes:
        name: Its name.
        parameters: The names of its parameters, in their order.
    """

    name: str
    parameters: tuple[str, ...]

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name."""
        return {**dict(zip(self.parameters, args, strict=False)), **kwargs}

    def takes_part(self, role: str, given: dict[str, Any]) -> bool:
        """Whether this rank gives (``src``) or gets (``dst``) something: one root may do alone."""
        return role not in self.parameters or self.root(given) == torch.distributed.get_rank()

    def root(self, given: dict[str, Any]) -> int | None:
        """The global rank that gives or gets for all; None where each one does."""
        for role in ("src", "dst"):
            if role not in self.parameters:
                continue
            if given.get(role) is not None:
                return int(given[role])
            inside = given.get(f"group_{role}")
            if inside is None or given.get("group") is None:
                return int(inside or 0)
            return torch.distributed.get_global_rank(given["group"], inside)
        return None


class CollectiveHooks:
    """Sees the collective functions of `torch.distributed`."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges

    def install(self, patches: Patches) -> None:
        """Begin to see collectives."""
        dist: Any = torch.distributed
        if not dist.is_available():
            return
        for name in (*_TENSORS, *_MARKERS):
            if not hasattr(dist, name):
                continue
            found = _Collective(name, tuple(inspect.signature(getattr(dist, name)).parameters))
            if name in _MARKERS:
                patches.after(dist, name, functools.partial(self._marked, found))
            else:
                before = functools.partial(self._before, found)
                patches.around(dist, name, before, functools.partial(self._after, found))
        patches.after(dist.Work, "wait", self._waited)

    def _before(self, found: _Collective, args: Any, kwargs: Any) -> None:
        given = found.bound(args, kwargs)
        if not self._wanted(given):
            return
        self._exchanges.group(found.name, _group(found, given))
        if found.takes_part("src", given):
            self._exchanges.given(found.name, given.get(_TENSORS[found.name][0]))

    def _after(self, found: _Collective, result: Any, args: Any, kwargs: Any) -> None:
        given = found.bound(args, kwargs)
        # What is left in the tensor of a rank that gets nothing is no result.
        if not self._wanted(given) or not found.takes_part("dst", given):
            return
        value = given.get(_TENSORS[found.name][1])
        if result is not None:
            self._exchanges.later(id(result), result, found.name, value)
        else:
            self._exchanges.got(found.name, value)

    def _waited(self, result: Any, args: Any, kwargs: Any) -> None:
        self._exchanges.arrived(id(args[0]))

    def _marked(self, found: _Collective, result: Any, args: Any, kwargs: Any) -> None:
        if self._wanted(found.bound(args, kwargs)):
            self._exchanges.called(found.name)

    def _wanted(self, given: dict[str, Any]) -> bool:
        outside = given.get("group") is torch.distributed.GroupMember.NON_GROUP_MEMBER
        return not outside and self._exchanges.wanted()


def _group(found: _Collective, given: dict[str, Any]) -> dict[str, Any]:
    """Who takes part in a call, and what is done with what they give."""
    dist: Any = torch.distributed
    told: dict[str, Any] = {"ranks": dist.get_process_group_ranks(given.get("group"))}
    if (root := found.root(given)) is not None:
        told["root"] = root
    if "op" in found.parameters:
        told["op"] = str(given.get("op", dist.ReduceOp.SUM)).rpartition(".")[2].lower()
    return told
