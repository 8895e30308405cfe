"""Definitions: notices when modules that watched functions may be in have defined what they define.

A module that is imported later tells by way of its loader. One that is being executed when the
recording begins, as the script itself is, has no loader that could tell: its frame is traced, line
by line and only until the definition is passed.
"""

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from traceparity.recorder.functions import modules_named, modules_of
from traceparity.recorder.late_import import at_imports


class Definitions:
    """Calls back whenever a function may have been defined."""

    def __init__(self, names: tuple[str, ...], told: Callable[[], None]) -> None:
        """Prepare.

        Args:
            names: Dotted names of functions.
            told: Called when one of them may be there; no error of it may come out.
        """
        self._names = names
        self._told = told
        self._leave_imports: Callable[[], None] | None = None
        self._ends: dict[FrameType, int] = {}

    def install(self) -> None:
        """Begin to notice."""
        modules = {module for name in self._names for module in modules_of(name)}
        self._leave_imports = at_imports(modules, lambda _: self._told())
        # A debugger or a coverage tool has the only trace function that there is.
        if sys.gettrace() is not None:
            return
        for frame in _module_frames():
            last = max((line for line in self._lines_in(frame)), default=0)
            if last > frame.f_lineno:
                self._ends[frame] = last
                frame.f_trace = self._in_module
        if self._ends:
            sys.settrace(_nothing)

    def remove(self) -> None:
        """Stop."""
        if self._leave_imports is not None:
            self._leave_imports()
        for frame in list(self._ends):
            self._leave(frame)

    def _lines_in(self, frame: FrameType) -> Iterator[int]:
        """The last lines of the definitions in a module's body that are waited for."""
        for name in self._names:
            for prefix in modules_of(name):
                if any(vars(each) is frame.f_globals for each in modules_named(prefix)):
                    first = name[len(prefix) + 1 :].partition(".")[0]
                    yield from _last_lines(frame.f_code, first)

    def _in_module(self, frame: FrameType, event: str, _: Any) -> Any:
        if event in ("line", "return"):
            self._told()
            if event == "return" or frame.f_lineno > self._ends.get(frame, 0):
                self._leave(frame)
                return None
        return self._in_module

    def _leave(self, frame: FrameType) -> None:
        self._ends.pop(frame, None)
        frame.f_trace = None
        if not self._ends and sys.gettrace() is _nothing:
            sys.settrace(None)


def _nothing(frame: FrameType, event: str, argument: Any) -> None:
    """Trace no frame but those that are being traced."""


def _module_frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            yield frame
        frame = frame.f_back


def _last_lines(code: CodeType, name: str) -> Iterator[int]:
    for const in code.co_consts:
        if isinstance(const, CodeType) and const.co_name == name:
            yield max(_lines(const))


def _lines(code: CodeType) -> Iterator[int]:
    yield code.co_firstlineno
    yield from (line for *_, line in code.co_lines() if line is not None)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _lines(const)
