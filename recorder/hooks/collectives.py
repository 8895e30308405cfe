"""Collectives that the program issues: what it gives to other processes and what it gets.

Those that torch issues itself (the reducer of DDP, `fully_shard`, distributed tensors, collectives
of objects) are no calls of the program and are left alone. Nothing waits here: the result of an
asynchronous call is seen when the program has waited for it.
"""

import functools
import inspect
import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from traceparity.recorder.change_log import ChangeLog
from traceparity.recorder.leaves import leaves
from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import Recording
from traceparity.tracefmt.records import Flag, Kind, Phase

if TYPE_CHECKING:
    from types import FrameType

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
    "broadcast_object_list",
)  # fmt: skip
_OF_TORCH = "torch."
_ON_BEHALF_OF_THE_PROGRAM = "torch.distributed.nn."


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

    def __init__(self, recording: Recording, log: ChangeLog) -> None:
        self._recording = recording
        self._log = log
        self._waited_for: dict[int, tuple[Any, Phase, str, Any]] = {}

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
        phase = self._recording.phase
        self._log.plain(phase, found.name, "group", _group(found, given), flags=Flag.CONTEXT)
        if found.takes_part("src", given):
            self._values(phase, found.name, "input", given.get(_TENSORS[found.name][0]))

    def _after(self, found: _Collective, result: Any, args: Any, kwargs: Any) -> None:
        given = found.bound(args, kwargs)
        # What is left in the tensor of a rank that gets nothing is no result.
        if not self._wanted(given) or not found.takes_part("dst", given):
            return
        phase, value = self._recording.phase, given.get(_TENSORS[found.name][1])
        if result is not None:
            self._wait_for(result, phase, found.name, value)
        elif _is_coalescing():
            self._recording.writer.not_observed(found.name, "the results of a coalesced call")
        else:
            self._values(phase, found.name, "output", value)

    def _wait_for(self, result: Any, phase: Phase, name: str, value: Any) -> None:
        key, pending = id(result), self._waited_for

        def forgotten(_: object) -> None:
            if pending.pop(key, None) is not None:
                self._recording.writer.not_observed(name, "a result that nobody waited for")

        held = weakref.ref(result, self._recording.guard.hook(forgotten))
        pending[key] = held, phase, name, value

    def _waited(self, result: Any, args: Any, kwargs: Any) -> None:
        known = self._waited_for.pop(id(args[0]), None)
        if known is not None and not self._recording.idle:
            _, phase, name, value = known
            self._values(phase, name, "output", value)

    def _marked(self, found: _Collective, result: Any, args: Any, kwargs: Any) -> None:
        given = found.bound(args, kwargs)
        if self._wanted(given):
            self._recording.plain(
                self._recording.phase, found.name, "called", True, Flag.CONTEXT, Kind.MARKER
            )

    def _values(self, phase: Phase, name: str, field: str, value: Any) -> None:
        for path, leaf in leaves([value] if isinstance(value, torch.Tensor) else value, field):
            if field == "output" and isinstance(leaf, torch.Tensor):
                # What comes from other processes is written past the version counter.
                self._recording.observer.forget_one(leaf)
            self._recording.value(phase, name, path, leaf, Flag.CONTEXT)

    def _wanted(self, given: dict[str, Any]) -> bool:
        if self._recording.idle or not _called_by_program():
            return False
        return given.get("group") is not torch.distributed.GroupMember.NON_GROUP_MEMBER


def _called_by_program() -> bool:
    """Whether the innermost frame that is not ours is the program's rather than torch's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("traceparity."):
            own = name.startswith(_OF_TORCH)
            return not own or name.startswith(_ON_BEHALF_OF_THE_PROGRAM)
        frame = frame.f_back
    return False


def _is_coalescing() -> bool:
    """Whether calls are gathered to be made together later."""
    state: Any = getattr(torch.distributed.distributed_c10d, "_world", None)
    return bool(getattr(state, "pg_coalesce_state", None))


def _group(found: _Collective, given: dict[str, Any]) -> dict[str, Any]:
    """Who takes part in a call, and what is done with what they give."""
    dist: Any = torch.distributed
    told: dict[str, Any] = {"ranks": dist.get_process_group_ranks(given.get("group"))}
    if (root := found.root(given)) is not None:
        told["root"] = root
    if "op" in found.parameters:
        told["op"] = str(given.get("op", dist.ReduceOp.SUM)).rpartition(".")[2].lower()
    return told
