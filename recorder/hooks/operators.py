"""Operators: what each operator inside a chosen module is given and gives, in the order of calls.

A dispatch mode sees the operators below autograd and calls them as they would have been called. It
is active only while the forward pass of a chosen module runs in a recorded step.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import TorchDispatchMode

from traceparity.recorder.blank_memory import BlankMemory
from traceparity.recorder.leaves import leaves, tensors
from traceparity.recorder.recording import Recording
from traceparity.tracefmt.globs import glob_matches
from traceparity.tracefmt.records import Phase

Running = Callable[[], str | None]
"""Tells the path of the module whose forward pass runs as part of a recorded step, if any."""


class OperatorHooks:
    """Watches the inside of the modules that the settings choose."""

    def __init__(self, recording: Recording, running: Running) -> None:
        """Prepare.

        Args:
            recording: The recording.
            running: Asked when a module's call has begun.
        """
        self._recording = recording
        self._running = running
        self._entered = threading.local()

    def install(self) -> list[Any]:
        """Begin to watch, after the hooks that follow which module runs; returns the handles."""
        if not self._recording.settings.operators:
            return []
        # Not in the guard, which hides dispatch modes from what it calls.
        return [
            torch_module.register_module_forward_pre_hook(self._before),
            torch_module.register_module_forward_hook(self._after, always_call=True),
        ]

    def remove(self) -> None:
        """Stop, where a recording ends in the midst of a call."""
        self._leave()

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling() or not self._recording.guard.active:
            return
        path = self._running()
        if path is None or "mode" in self._entered.__dict__:
            return
        wanted = self._recording.settings.operators
        if any(glob_matches(glob, path) for glob in wanted):
            inside, guard = _Inside(self._recording, self._running), self._recording.guard
            mode: Any = _Watching(guard.hook(inside.begins), guard.hook(inside.ends))
            self._entered.mode, self._entered.module = mode, id(module)
            mode.__enter__()

    def _after(self, module: torch.nn.Module, *_: Any) -> None:
        if not torch.compiler.is_compiling() and self._entered.__dict__.get("module") == id(module):
            self._leave()

    def _leave(self) -> None:
        mode = self._entered.__dict__.pop("mode", None)
        self._entered.__dict__.pop("module", None)
        if mode is not None:
            mode.__exit__(None, None, None)


class _Operator:
    """A call of an operator in progress; without a name it is not recorded."""

    __slots__ = ("args", "func", "kwargs", "name", "path", "written")

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.name = ""
        self.path = ""
        self.written: list[torch.Tensor] = []


class _Inside:
    """What is followed during one call of a chosen module."""

    def __init__(self, recording: Recording, running: Running) -> None:
        self._recording = recording
        self._running = running
        self._count: Counter[tuple[str, str]] = Counter()
        self._blank = BlankMemory()

    def begins(self, call: _Operator) -> None:
        """An operator is about to be called."""
        path = self._running()
        if path is None or _only_views(call.func):
            return
        packet = str(call.func).rpartition(".")[0]
        call.path = path
        # By number, since each use of an operator has a source line of its own.
        call.name = f"{packet}[{self._count[path, packet]}]"
        self._count[path, packet] += 1
        call.written = _written(call.func, call.args, call.kwargs)
        # What an operator writes to is seen when it is written.
        given = self._shown((*call.args, *call.kwargs.values()), call.written)
        self._note(path, f"{call.name}.input", given)

    def ends(self, call: _Operator, result: Any) -> None:
        """An operator has given its result."""
        if not call.name:
            return
        overwritten = {id(tensor) for tensor in call.written}
        given = tensors((*call.args, *call.kwargs.values()))
        read = [tensor for tensor in given if id(tensor) not in overwritten]
        self._blank.called(str(call.func).partition(".")[2], read, call.written, result)
        self._note(call.path, f"{call.name}.output", self._shown(*_results(result)))

    def _note(self, path: str, prefix: str, values: list[Any]) -> None:
        for field, leaf in leaves(values, prefix):
            if leaf is not None:
                self._recording.value(Phase.FORWARD, path, field, leaf)

    def _shown(self, values: Any, without: list[torch.Tensor]) -> list[Any]:
        """Values with None in the place of some tensors and of those that hold nothing yet."""
        hidden = {id(tensor) for tensor in without}
        return [
            None
            if isinstance(value, torch.Tensor) and (id(value) in hidden or self._blank.holds(value))
            else value
            for value in values
        ]


class _Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Active during one call of a chosen module; calls each operator as it would be called."""

    def __init__(self, begins: Callable[..., None], ends: Callable[..., None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._begins = begins
        self._ends = ends

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = _Operator(func, args, kwargs or {})
        self._begins(call)
        result = func(*args, **call.kwargs)
        self._ends(call, result)
        return result


def _results(result: Any) -> tuple[Any, list[torch.Tensor]]:
    """What an operator gave, and the part of it that is no value."""
    if not isinstance(result, tuple | list):
        return (result,), []
    # Beside results a kernel gives its workspace, as bytes of which some were never written.
    return result, [each for each in tensors(result) if each.dtype == torch.uint8]


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
