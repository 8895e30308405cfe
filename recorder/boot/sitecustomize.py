"""Boot file of recorded programs: waits for torch, then hands over to the recorder.

It lies in a folder that `tp-record` puts first on PYTHONPATH, so every Python process of the
command runs it at start. It imports almost nothing, and does nothing unless the recorder's
variable is set.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident

TYPE_CHECKING = False  # typing's own would take longer to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def _leave_path() -> None:
    """Take our folder off the path again, for which the program did not ask."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]


def _chain() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _AfterTorch:
    """A finder that stays until torch's module body has really run; probes do not count."""

    def __init__(self) -> None:
        self._asking: set[int] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Give torch's own spec with a loader that tells us."""
        thread = get_ident()
        # Another finder of this kind would ask us in turn.
        if name != "torch" or "torch" in sys.modules or thread in self._asking:
            return None
        self._asking.add(thread)
        try:
            return self._with_our_loader(name, path, target)
        finally:
            self._asking.discard(thread)

    def _with_our_loader(self, *wanted: Any) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(*wanted)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """Torch's own loader, and then us."""

    def __init__(self, loader: Any, finder: Any) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException as error:
            trace = error.__traceback__  # its first frame is this one
            error.__traceback__ = trace and trace.tb_next
            raise
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
            _attach()


def _attach() -> None:
    try:
        if "TRACEPARITY_RECORD" in os.environ:
            from traceparity.recorder.attach import attach

            attach()
        if "TRACEPARITY_END_STATE" in os.environ:
            from traceparity.recorder.end_state import keep

            keep()
    except Exception as error:  # noqa: BLE001 - the program imports torch and knows nothing of us
        if sys.stderr is not None:
            sys.stderr.write(
                f"traceparity: not recorded: {sys.executable} cannot import the recorder"
                f" ({type(error).__name__}: {error}); is traceparity installed there?\n"
            )


_leave_path()
if "TRACEPARITY_RECORD" in os.environ or "TRACEPARITY_END_STATE" in os.environ:
    if "torch" in sys.modules:  # a .pth file was faster
        _attach()
    else:
        sys.meta_path.insert(0, _AfterTorch())
_chain()
