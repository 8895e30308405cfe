"""Exchanges: what the program gives to other processes and what it gets, in rows of a trace.

Nothing here waits: a result that is not there yet is seen when the program has waited for it.
"""

import sys
import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from traceparity.recorder.change_log import ChangeLog
from traceparity.recorder.guard import inside_backward
from traceparity.recorder.leaves import leaves
from traceparity.recorder.recording import Recording
from traceparity.tracefmt.records import Flag, Kind, Phase

if TYPE_CHECKING:
    from types import FrameType

_UNAWAITED = "a result that nobody waited for"
_OF_TORCH = "torch."
_ON_BEHALF_OF_THE_PROGRAM = "torch.distributed.nn."


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A result that the program has not waited for.

    Attributes:
        handle: What it waits with; it may give it up.
        phase: Where in the step the call was.
        name: Of the function.
        value: The result; None where it is the handle itself.
        number: Which one of several results it is.
    """

    handle: weakref.ref[Any]
    phase: Phase
    name: str
    value: Any
    number: int


class Exchanges:
    """Writes the rows of all functions that exchange values with other processes."""

    def __init__(self, recording: Recording, log: ChangeLog) -> None:
        self._recording = recording
        self._log = log
        self._awaited: dict[Hashable, _Awaited] = {}

    def wanted(self, *, through: frozenset[str] = frozenset()) -> bool:
        """Whether a call that is under way is recorded: it is if the program made it.

        Args:
            through: Functions of `torch.distributed` that the program may have called instead.
        """
        return not self._recording.idle and _called_by_program(through)

    def group(self, name: str, facts: dict[str, Any]) -> None:
        """A call begins: who takes part in it, where that is another group than last time."""
        self._log.plain(self._phase(), name, "group", facts, flags=Flag.CONTEXT)

    def given(self, name: str, value: Any) -> None:
        """What a call is given."""
        phase = self._phase()
        for path, leaf in _leaves(value, "input"):
            self._recording.value(phase, name, path, leaf, Flag.CONTEXT)

    def got(self, name: str, value: Any, number: int = 0) -> None:
        """What a call gave, if its results are not gathered to be fetched together later."""
        if _is_coalescing():
            self._recording.writer.not_observed(name, "the results of a coalesced call")
        else:
            self._results(self._phase(), name, value, number)

    def called(self, name: str) -> None:
        """A call whose values are not recorded was made."""
        self._recording.plain(self._phase(), name, "called", True, Flag.CONTEXT, Kind.MARKER)

    def later(self, key: Hashable, handle: Any, name: str, value: Any, number: int = 0) -> None:
        """A call was made whose result is there when the program has waited for ``handle``.

        Args:
            key: What `arrived` will know it by.
            handle: What is waited for; held weakly.
            name: Of the function.
            value: The tensor or tensors that get the result; None where that is the handle.
            number: Which one of several results it is.
        """
        awaited = self._awaited

        def forgotten(_: object) -> None:
            if awaited.pop(key, None) is not None:
                self._recording.writer.not_observed(name, _UNAWAITED)

        guarded: Callable[..., None] = self._recording.guard.hook(forgotten)
        awaited[key] = _Awaited(weakref.ref(handle, guarded), self._phase(), name, value, number)

    def arrived(self, key: Hashable) -> None:
        """The program has waited for what it knows by ``key``."""
        known = self._awaited.pop(key, None)
        if known is not None and not self._recording.idle:
            value = known.handle() if known.value is None else known.value
            self._results(known.phase, known.name, value, known.number)

    def finish(self) -> None:
        """The program ends: nobody will wait any more."""
        for known in self._awaited.values():
            self._recording.writer.not_observed(known.name, _UNAWAITED)
        self._awaited.clear()

    def _results(self, phase: Phase, name: str, value: Any, number: int) -> None:
        for path, leaf in _leaves(value, "output", number):
            if isinstance(leaf, torch.Tensor):
                # What comes from other processes is written past the version counter.
                self._recording.observer.forget_one(leaf)
            self._recording.value(phase, name, path, leaf, Flag.CONTEXT)

    def _phase(self) -> Phase:
        """Where in the step the program is."""
        window = self._recording.window
        if inside_backward():
            return Phase.BACKWARD
        if window.in_step:
            return Phase.OPTIMIZER
        if not window.open:
            return Phase.STATE
        if window.updated:
            return Phase.SCHEDULER
        return Phase.GRADIENT if window.backward_done else Phase.FORWARD


def _leaves(value: Any, field: str, number: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield f"{field}[{number}]", value
    else:
        yield from leaves(value, field)


def _called_by_program(through: frozenset[str]) -> bool:
    """Whether the innermost frame that is not ours is the program's rather than torch's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not (name.startswith("traceparity.") or (through and _passes(frame, name, through))):
            own = name.startswith(_OF_TORCH)
            return not own or name.startswith(_ON_BEHALF_OF_THE_PROGRAM)
        frame = frame.f_back
    return False


def _passes(frame: "FrameType", module: str, through: frozenset[str]) -> bool:
    if module == "torch.distributed.c10d_logger":
        return True
    return module == "torch.distributed.distributed_c10d" and frame.f_code.co_name in through


def _is_coalescing() -> bool:
    """Whether calls are gathered to be made together later."""
    state: Any = getattr(torch.distributed.distributed_c10d, "_world", None)
    return bool(getattr(state, "pg_coalesce_state", None))
