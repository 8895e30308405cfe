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
        self._note = recording.guard.hook(self._observe)

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
            mode: Any = _Watching(self._note, self._running)
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

    def _observe(self, path: str, prefix: str, value: Any) -> None:
        for field, leaf in leaves(value, prefix):
            if leaf is not None:
                self._recording.value(Phase.FORWARD, path, field, leaf)


class _Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Active during one call of a chosen module."""

    def __init__(self, note: Callable[[str, str, Any], None], running: Running) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note
        self._running = running
        self._count: Counter[tuple[str, str]] = Counter()
        self._blank = BlankMemory()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        path = self._running()
        if path is None or _only_views(func):
            return func(*args, **kwargs)
        packet = str(func).rpartition(".")[0]
        # By number, since each use of an operator has a source line of its own.
        name = f"{packet}[{self._count[path, packet]}]"
        self._count[path, packet] += 1
        given = (*args, *kwargs.values())
        written = _written(func, args, kwargs)
        # Before the call. What an operator writes to is seen when it is written.
        self._note(path, f"{name}.input", self._shown(given, written))
        result = func(*args, **kwargs)
        overwritten = {id(tensor) for tensor in written}
        read = [tensor for tensor in tensors(given) if id(tensor) not in overwritten]
        self._blank.called(str(func).partition(".")[2], read, written, result)
        single = not isinstance(result, tuple | list)
        shown = self._shown((result,) if single else result, [])
        self._note(path, f"{name}.output", shown)
        return result

    def _shown(self, values: Any, written: list[torch.Tensor]) -> list[Any]:
        """Values with None in the place of tensors that hold nothing yet, or are overwritten."""
        hidden = {id(tensor) for tensor in written}
        return [
            None
            if isinstance(value, torch.Tensor) and (id(value) in hidden or self._blank.holds(value))
            else value
            for value in values
        ]


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
