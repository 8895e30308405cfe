"""Modules that are imported late: told of when their body has run."""

import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from threading import get_ident
from types import ModuleType
from typing import Any

from traceparity.recorder.patches import leave_no_frame

Told = Callable[[ModuleType], None]


def when_imported(name: str, told: Told) -> Callable[[], None]:
    """Call ``told`` with a module, now if it is there, else when it has been imported.

    Args:
        name: The module.
        told: Called once and only if the import ended well; it must not raise.

    Returns:
        What ends the wait.
    """
    if name in sys.modules:
        told(sys.modules[name])
        return lambda: None

    def once(module: ModuleType) -> None:
        leave()
        told(module)

    leave = at_imports([name], once)
    return leave


def at_imports(names: Iterable[str], told: Told) -> Callable[[], None]:
    """Call ``told`` with each of some modules, every time that it is imported from now on.

    Args:
        names: The modules.
        told: Called only if the import ended well; it must not raise.

    Returns:
        What ends the wait.
    """
    finder = _Finder(frozenset(names), told)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder:
    """Gives modules' own specs, with a loader that tells; a probe that loads nothing tells nothing.

    The specs come from all other finders, since a test runner or an archive has its own.
    """

    def __init__(self, names: frozenset[str], told: Told) -> None:
        self._names = names
        self._told = told
        self._asking: set[tuple[int, str]] = set()

    def find_spec(self, name: str, *rest: Any) -> ModuleSpec | None:
        key = get_ident(), name
        # Another finder of this kind asks us in turn.
        if name not in self._names or key in self._asking:
            return None
        self._asking.add(key)
        try:
            return self._with_our_loader(name, *rest)
        finally:
            self._asking.discard(key)

    def _with_our_loader(self, *wanted: Any) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(*wanted)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._tell)  # type: ignore[assignment]
                return spec
        return None

    def _tell(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            self._told(module)

    def leave(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _Loader:
    """A module's own loader, and then us."""

    def __init__(self, loader: Any, told: Told) -> None:
        self._loader = loader
        self._told = told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException as error:
            leave_no_frame(error)
            raise
        self._told(module)
