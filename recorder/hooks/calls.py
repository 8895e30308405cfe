"""Calls of functions that users name: what they are given, what they give, and how they end.

A watched function is replaced, where it is held, by one that also tells us. All that says so is
context: it explains, and two recordings compare with and without it.
"""

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

from traceparity.recorder.definitions import Definitions
from traceparity.recorder.functions import (
    Function,
    NotWatchableError,
    look_up,
    modules_named,
    modules_of,
)
from traceparity.recorder.guard import inside_backward
from traceparity.recorder.leaves import leaves
from traceparity.recorder.patches import Patches, leave_no_frame
from traceparity.recorder.recording import Recording
from traceparity.tracefmt.records import Flag, Kind

_NO_CALLER = "<traceparity, like importlib._bootstrap>"
"""Warnings that count callers skip such a file, and so does our search for the user's lines."""


class CallHooks:
    """Sees calls of watched functions, also of those that are defined later."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._pending = list(dict.fromkeys(recording.settings.watch))
        self._refused: dict[str, str] = {}
        self._thread = threading.get_ident()
        self._definitions: Definitions | None = None
        self._patches: Patches | None = None

    def install(self, patches: Patches) -> None:
        """Begin to see calls."""
        if not self._pending:
            return
        self._patches = patches
        self._thread = threading.get_ident()
        look = self._recording.guard.hook(self.look)
        look()
        if self._pending:
            self._definitions = Definitions(tuple(self._pending), look)
            self._definitions.install()

    def look(self) -> None:
        """Replace those functions that are there by now."""
        for name in list(self._pending):
            try:
                found = look_up(name)
            except NotWatchableError as what:
                self._refused[name] = str(what)
                self._pending.remove(name)
                continue
            if found is not None:
                self._pending.remove(name)
                self._replace(name, found)
        if not self._pending:
            self.remove()

    def remove(self) -> None:
        """Look for no more functions."""
        if self._definitions is not None:
            self._definitions.remove()
            self._definitions = None

    @property
    def refused(self) -> dict[str, str]:
        """Names whose calls cannot be seen, as far as it is known by now, and why."""
        return self._refused

    def unseen(self) -> Iterator[tuple[str, str]]:
        """Names whose calls were not seen, and why."""
        yield from self._refused.items()
        for name in self._pending:
            loaded = [each for each in modules_of(name) if any(modules_named(each))]
            there = f"{loaded[0]} has none" if loaded else f"{modules_of(name)[-1]} is not imported"
            yield name, f"no such function was defined ({there})"

    def _replace(self, name: str, found: Function) -> None:
        assert self._patches is not None
        told: Any = self._telling(name, found)
        if isinstance(found.stored, classmethod | staticmethod):
            told = type(found.stored)(told)
        for holder, attribute in found.holders:
            self._patches.put(holder, attribute, told)

    def _telling(self, name: str, found: Function) -> FunctionType:
        guard, function = self._recording.guard, found.plain
        call = _Watched(self._recording, f"{name}()", found)
        begins = guard.hook(functools.partial(self._if_ours, call.begins))
        ends = guard.hook(functools.partial(self._if_ours, call.ends))
        compiling, left = torch.compiler.is_compiling, leave_no_frame

        def watched(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return function(*args, **kwargs)
            begins(args, kwargs)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                ends(None, f"raised {error.__class__.__name__}")
                left(error)
                raise
            ends(result, "returned")
            return result

        # In the globals of the function, where whoever compiles it looks up its names.
        code = watched.__code__.replace(co_filename=_NO_CALLER, co_name=function.__name__)
        told = FunctionType(
            code, function.__globals__, function.__name__, None, watched.__closure__
        )
        functools.update_wrapper(told, function)
        return told

    def _if_ours(self, body: Callable[..., None], *args: Any) -> None:
        # The order of calls of several threads means nothing; backward passes have their own.
        ours = threading.get_ident() == self._thread or inside_backward()
        if ours and not self._recording.idle:
            body(*args)


class _Watched:
    """One watched function."""

    def __init__(self, recording: Recording, component: str, found: Function) -> None:
        self._recording = recording
        self._component = component
        self._bound = found.bound
        self._signature = inspect.signature(found.plain)

    def begins(self, args: Any, kwargs: Any) -> None:
        """It is called."""
        self._mark("called", {"grad": torch.is_grad_enabled()})
        self._values(self._given(args, kwargs), "input")

    def ends(self, result: Any, how: str) -> None:
        """It has returned, or raised an exception."""
        self._values([result] if isinstance(result, torch.Tensor) else result, "output")
        self._mark("ended", how)

    def _given(self, args: Any, kwargs: Any) -> dict[str, Any]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            # The call will fail, as the program's own fault.
            return {}
        # What is left to its default is an argument, too, and may become another one.
        bound.apply_defaults()
        given = dict(bound.arguments)
        if self._bound:
            given.pop(next(iter(given), ""), None)
        return given

    def _mark(self, field: str, value: Any) -> None:
        phase = self._recording.phase
        flags, kind = Flag.CONTEXT, Kind.MARKER
        self._recording.plain(phase, self._component, field, value, flags, kind)

    def _values(self, value: Any, field: str) -> None:
        for path, leaf in leaves(value, field):
            phase = self._recording.phase
            self._recording.value(phase, self._component, path, leaf, Flag.CONTEXT)
