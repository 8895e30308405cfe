"""Patches: replaced attributes of torch, with the way back."""

import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch

from traceparity.recorder.guard import Guard

_NO_CALLER = f"{__file__} (like importlib._bootstrap)"


class Patches:
    """Replaces functions and methods by ones that also tell us, and puts them back."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        # Holder, name, what is there now, what was there, and whether it was the holder's own.
        self.replaced: list[tuple[Any, str, Any, Any, bool]] = []
        self._undone: list[Callable[[], None]] = []

    def replace(self, holder: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Set ``holder.name`` to ``make(original)``, also in the module that defines it.

        There, functions are looked up by pickle, which a loader's dataset may be sent with.
        """
        if any(known is holder and name == other for known, other, *_ in self.replaced):
            return
        original = getattr(holder, name)
        patched = make(original)
        # A warning names the line that called what warns; the count of callers skips such files.
        if isinstance(patched, FunctionType):
            patched.__code__ = patched.__code__.replace(co_filename=_NO_CALLER)
        self.put(holder, name, patched)
        home = sys.modules.get(getattr(original, "__module__", None) or "")
        elsewhere = isinstance(holder, ModuleType) and home is not None and home is not holder
        if elsewhere and getattr(home, name, None) is original:
            self.put(home, name, patched)

    def put(self, holder: Any, name: str, patched: Any) -> None:
        """Set ``holder.name`` to something, until it is put back."""
        own = name in vars(holder)
        before = vars(holder)[name] if own else None
        setattr(holder, name, patched)
        self.replaced.append((holder, name, patched, before, own))

    def after(
        self, holder: Any, name: str, told: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
    ) -> None:
        """Call ``told(result, args, kwargs)`` after each call of ``holder.name``."""
        hook = self._guard.hook(told)

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def patched(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling():
                    return original(*args, **kwargs)
                try:
                    result = original(*args, **kwargs)
                except BaseException as error:
                    leave_no_frame(error)
                    raise
                hook(result, args, kwargs)
                return result

            return patched

        self.replace(holder, name, make)

    def before(
        self, holder: Any, name: str, told: Callable[[tuple[Any, ...], dict[str, Any]], None]
    ) -> None:
        """Call ``told(args, kwargs)`` before each call of ``holder.name``."""
        hook = self._guard.hook(told)

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def patched(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling():
                    return original(*args, **kwargs)
                hook(args, kwargs)
                try:
                    return original(*args, **kwargs)
                except BaseException as error:
                    leave_no_frame(error)
                    raise

            return patched

        self.replace(holder, name, make)

    def around(
        self,
        holder: Any,
        name: str,
        before: Callable[[tuple[Any, ...], dict[str, Any]], None],
        after: Callable[[Any, tuple[Any, ...], dict[str, Any]], None],
    ) -> None:
        """Call ``before(args, kwargs)`` and ``after(result, args, kwargs)`` around each call."""
        first, last = self._guard.hook(before), self._guard.hook(after)

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def patched(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling():
                    return original(*args, **kwargs)
                first(args, kwargs)
                result = None
                try:
                    result = original(*args, **kwargs)
                except BaseException as error:
                    leave_no_frame(error)
                    raise
                finally:
                    last(result, args, kwargs)
                return result

            return patched

        self.replace(holder, name, make)

    def on_undo(self, undone: Callable[[], None]) -> None:
        """Have something else undone with the patches."""
        self._undone.append(undone)

    def undo(self) -> None:
        """Put back everything, but for what the program has wrapped since: ours only passes on."""
        while self._undone:
            self._undone.pop()()
        for holder, name, patched, original, own in reversed(self.replaced):
            if vars(holder).get(name) is not patched:
                continue
            if own:
                setattr(holder, name, original)
            else:
                delattr(holder, name)
        self.replaced.clear()


def leave_no_frame(error: BaseException) -> None:
    """Take the frame that has caught ``error`` out of its traceback; to be re-raised as it is."""
    trace = error.__traceback__
    if trace is not None:
        error.__traceback__ = trace.tb_next
