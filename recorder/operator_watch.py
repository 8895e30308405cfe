"""Operators as they are called: what each is given and what it gives becomes rows."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from traceparity.recorder.blank_memory import BlankMemory
from traceparity.recorder.leaves import leaves, tensors
from traceparity.recorder.operator_place import Place, Places
from traceparity.recorder.recording import UNWANTED, Recording
from traceparity.tracefmt.globs import glob_matches
from traceparity.tracefmt.records import Flag, Phase


class OperatorCall:
    """A call of an operator in progress; without a place it is not recorded."""

    __slots__ = ("args", "func", "kwargs", "name", "place", "written")

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.name = ""
        self.place: Place | None = None
        self.written: list[torch.Tensor] = []


class OperatorWatch:
    """Records the operators of the components that the settings choose."""

    def __init__(self, recording: Recording, places: Places) -> None:
        self._recording = recording
        self._places = places
        self._count: dict[Phase, Counter[tuple[str, str]]] = {phase: Counter() for phase in Phase}
        self._blank = BlankMemory()
        self._chosen: dict[str, bool] = {}

    def chooses(self, component: str) -> bool:
        """Whether the settings choose a component or a module that it is inside of."""
        known = self._chosen.get(component)
        if known is None:
            owners = [component]
            while "." in owners[-1]:
                owners.append(owners[-1].rpartition(".")[0])
            globs = self._recording.settings.operators
            known = any(glob_matches(glob, owner) for glob in globs for owner in owners)
            self._chosen[component] = known
        return known

    def count_anew(self, *phases: Phase) -> None:
        """Number the operators of phases from 0 again."""
        for phase in phases:
            self._count[phase].clear()

    def forget(self) -> None:
        """A step began."""
        self.count_anew(*Phase)
        self._blank.forget_freed()

    def begins(self, call: OperatorCall) -> None:
        """An operator is about to be called."""
        if not hasattr(call.func, "_schema"):
            # An operator of a higher order, which runs others.
            return
        call.written = _written(call.func, call.args, call.kwargs)
        place = self._places.of_next(writes=bool(call.written))
        if place is None or not self.chooses(place.component) or _only_views(call.func):
            return
        packet = str(call.func).rpartition(".")[0]
        count = self._count[place.phase]
        call.place = place
        # By number, since each use of an operator has a source line of its own.
        call.name = f"{packet}[{count[place.component, packet]}]"
        count[place.component, packet] += 1
        given = (*call.args, *call.kwargs.values())
        # What an operator writes to is seen when it is written.
        hidden = call.written
        if place.phase == Phase.BACKWARD:
            hidden = [*hidden, *_workspace(given)]
        self._note(place, f"{call.name}.input", self._shown(given, hidden))

    def ends(self, call: OperatorCall, result: Any) -> None:
        """An operator has given its result."""
        if not hasattr(call.func, "_schema"):
            return
        overwritten = {id(tensor) for tensor in call.written}
        given = tensors((*call.args, *call.kwargs.values()))
        read = [tensor for tensor in given if id(tensor) not in overwritten]
        self._blank.called(str(call.func).partition(".")[2], read, call.written, result)
        if call.place is None:
            return
        if result is None:
            # What works on whole lists of tensors gives nothing back.
            self._note(call.place, f"{call.name}.output", self._shown(call.written, ()))
        else:
            self._note(call.place, f"{call.name}.output", self._shown(*_results(result)))
        if call.place.came_from is not None:
            field = f"{call.name}.from"
            self._recording.plain(
                call.place.phase, call.place.component, field, call.place.came_from, Flag.CONTEXT
            )

    def _note(self, place: Place, prefix: str, values: list[Any]) -> None:
        recording = self._recording
        for field, leaf in leaves(values, prefix):
            if leaf is None:
                continue
            site = recording.site(place.phase, place.component, field, place.location)
            if site == UNWANTED:
                return
            recording.value(place.phase, place.component, field, leaf)

    def _shown(self, values: Any, without: Sequence[torch.Tensor]) -> list[Any]:
        """Values with None in the place of some tensors and of those that hold nothing yet."""
        hidden = {id(tensor) for tensor in without}

        def shown(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [shown(each) for each in value]
            if isinstance(value, torch.Tensor) and (
                id(value) in hidden or self._blank.holds(value)
            ):
                return None
            return value

        return [shown(value) for value in values]


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells of each operator of a thread and calls it as it would have been called."""

    supports_higher_order_operators = True

    def __init__(self, begins: Callable[..., None], ends: Callable[..., None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._begins = begins
        self._ends = ends

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let regions be compiled as they would be without us: torch asks newer modes."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = OperatorCall(func, args, kwargs or {})
        self._begins(call)
        result = func(*args, **call.kwargs)
        self._ends(call, result)
        return result


def _results(result: Any) -> tuple[Any, list[torch.Tensor]]:
    """What an operator gave, and the part of it that is no value."""
    if not isinstance(result, tuple | list):
        return (result,), []
    return result, _workspace(result)


def _workspace(values: Any) -> list[torch.Tensor]:
    """What kernels give beside results for their backward: bytes, some of them never written."""
    return [each for each in tensors(values) if each.dtype == torch.uint8]


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The arguments that an operator writes to."""
    found = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        found += tensors(value)
    return found


def _only_views(func: Any) -> bool:
    """Whether an operator computes nothing, and gives its input in another shape."""
    returns = func._schema.returns
    return bool(returns) and all(
        each.alias_info is not None and not each.alias_info.is_write for each in returns
    )
