"""Functional collectives that the program issues: their results are tensors that wait when used.

The module that holds them is imported when something asks for it, and only then are they seen.
"""

import functools
import inspect
from types import ModuleType
from typing import Any

import torch

from traceparity.recorder.exchanges import Exchanges
from traceparity.recorder.late_import import when_imported
from traceparity.recorder.observe import storage_of
from traceparity.recorder.patches import Patches

_MODULE = "torch.distributed._functional_collectives"
_BASES = (
    "all_reduce", "broadcast", "all_gather_single", "all_gather_tensor", "reduce_scatter_single",
    "reduce_scatter_tensor", "all_to_all_single", "permute_tensor", "all_reduce_coalesced",
    "all_gather_single_coalesced", "all_gather_into_tensor_coalesced",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced",
)  # fmt: skip
_DIFFERENTIABLE = "_autograd"


class FunctionalCollectiveHooks:
    """Sees the functions of `torch.distributed._functional_collectives`, outside of compilation."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges

    def install(self, patches: Patches) -> None:
        """Begin to see functional collectives, now or when they are first imported."""
        if torch.distributed.is_available():
            patches.on_undo(when_imported(_MODULE, functools.partial(self._imported, patches)))

    def _imported(self, patches: Patches, module: ModuleType) -> None:
        for base in _BASES:
            for name in (base, f"{base}{_DIFFERENTIABLE}"):
                if hasattr(module, name):
                    parameters = tuple(inspect.signature(getattr(module, name)).parameters)
                    before = functools.partial(self._before, base, parameters)
                    patches.around(module, name, before, functools.partial(self._after, base))
        patches.after(module, "wait_tensor", self._waited)

    def _before(self, name: str, parameters: tuple[str, ...], args: Any, kwargs: Any) -> None:
        if self._exchanges.wanted():
            given = {**dict(zip(parameters, args, strict=False)), **kwargs}
            self._exchanges.group(name, _facts(given))
            self._exchanges.given(name, given.get(parameters[0]))

    def _after(self, name: str, result: Any, args: Any, kwargs: Any) -> None:
        if result is None or not self._exchanges.wanted():
            return
        for number, each in enumerate(result if isinstance(result, list) else [result]):
            held = getattr(each, "elem", None)
            if held is None or each.completed:
                self._exchanges.got(name, each, number)
            else:
                self._exchanges.later(_memory(held), held, name, None, number)

    def _waited(self, result: Any, args: Any, kwargs: Any) -> None:
        waits = args[0] if args else kwargs.get("tensor")
        self._exchanges.arrived(_memory(getattr(waits, "elem", waits)))


def _memory(tensor: Any) -> tuple[str, int]:
    """What a result is known by: whoever waits may have another view of it."""
    return "memory", storage_of(tensor)


def _facts(given: dict[str, Any]) -> dict[str, Any]:
    """Who takes part in a call, and what is done with what they give."""
    told: dict[str, Any] = {"ranks": _ranks(given.get("group"))}
    if "reduceOp" in given:
        told["op"] = str(given["reduceOp"]).lower()
    if "src" in given:
        told["root"] = given["src"]
    return told


def _ranks(group: Any) -> list[int]:
    """The ranks of a group in any of the ways to name one: all of it is looked up, nobody asked."""
    dist: Any = torch.distributed
    if isinstance(group, list):
        nested = group and isinstance(group[0], list)
        return [rank for part in group for rank in part] if nested else group
    if isinstance(group, str):
        group = dist.distributed_c10d._resolve_process_group(group)
    elif isinstance(group, tuple):
        group = group[0].get_group(group[1])
    elif hasattr(group, "get_group"):
        group = group.get_group()
    ranks: list[int] = dist.get_process_group_ranks(group)
    return ranks
