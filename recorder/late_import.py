"""Modules of torch that are imported late: told of at once, or when their body has run."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from traceparity.recorder.patches import leave_no_frame


def when_imported(name: str, told: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call ``told`` with a module, now if it is there, else when it has been imported.

    Args:
        name: The module, of a package on the disk.
        told: Called once and only if the import ended well; it must not raise.

    Returns:
        What ends the wait.
    """
    if name in sys.modules:
        told(sys.modules[name])
        return lambda: None
    finder = _Finder(name, told)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder:
    """Finds one module, with a loader that tells us; probes that do not load it change nothing."""

    def __init__(self, name: str, told: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._told = told

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            with contextlib.suppress(AttributeError):
                self._tell_after(spec.loader)
        return spec

    def _tell_after(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            try:
                run(module)
            except BaseException as error:
                leave_no_frame(error)
                raise
            if self in sys.meta_path:
                self.leave()
                self._told(module)

        loader.exec_module = exec_module

    def leave(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
