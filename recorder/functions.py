"""Functions by name: where the function that a dotted name means is held, if it is there yet."""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method that was found.

    Attributes:
        holders: Who holds it, and under which name: its class, or all modules that name it.
        stored: What is stored there: the function, or the class or static method around it.
        plain: The function itself.
        bound: Whether its first argument is what it is called on.
    """

    holders: tuple[tuple[Any, str], ...]
    stored: Any
    plain: FunctionType
    bound: bool


class NotWatchableError(Exception):
    """A name means something else than a function that can be replaced; the message says what."""


def modules_of(name: str) -> tuple[str, ...]:
    """The modules that may hold what a dotted name means, the innermost first."""
    parts = name.split(".")
    return tuple(".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))


def look_up(name: str) -> Function | None:
    """The function that a name means; None while there is none.

    Raises:
        NotWatchableError: It means something else.
    """
    for prefix in modules_of(name):
        path = name[len(prefix) + 1 :].split(".")
        for module in modules_named(prefix):
            holder = _holder(module, path[:-1])
            stored = None if holder is None else inspect.getattr_static(holder, path[-1], None)
            if stored is not None:
                return _function(holder, path[-1], stored)
    return None


def modules_named(name: str) -> Iterator[ModuleType]:
    """The modules that go by a name: the script goes by that of its file, too."""
    if name in sys.modules:
        yield sys.modules[name]
    for running in ("__mp_main__", "__main__"):
        main = sys.modules.get(running)
        if main is not None and (name == "__main__" or name in _names_of(main)):
            yield main


def _names_of(main: ModuleType) -> set[str]:
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    names = {spec.name} if spec is not None else set()
    return names | {Path(file).stem} if file else names


def _holder(module: ModuleType, path: list[str]) -> Any:
    """The class at a path in a module, or the module; nothing of the program runs for it."""
    holder: Any = module
    for part in path:
        holder = vars(holder).get(part)
        if not isinstance(holder, type):
            return None
    return holder


def _function(holder: Any, name: str, stored: Any) -> Function:
    in_class = isinstance(holder, type)
    wrapped = in_class and isinstance(stored, classmethod | staticmethod)
    plain = stored.__func__ if wrapped else stored
    if isinstance(plain, type):
        raise NotWatchableError("is a class; name a method of it, such as __init__")
    if not isinstance(plain, FunctionType):
        raise NotWatchableError(f"is a {type(plain).__name__}, no function written in Python")
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise NotWatchableError("is asynchronous, and is left alone")
    bound = in_class and not isinstance(stored, staticmethod)
    holders = ((holder, name),) if in_class else _held(plain)
    return Function(holders or ((holder, name),), stored, plain, bound)


def _held(function: FunctionType) -> tuple[tuple[Any, str], ...]:
    """All modules that name a function, as where it was imported from its own module."""
    modules: list[Any] = list(sys.modules.values())
    return tuple(
        (module, name)
        for module in modules
        if isinstance(module, ModuleType)
        for name, value in list(vars(module).items())
        if value is function
    )
