"""Boot file of recorded programs: waits for torch, then hands over to the recorder.

It lies in a folder that `tp-record` puts first on PYTHONPATH, so every Python process of the command
runs it at start. It imports almost nothing, and does nothing unless the recorder's variable is set.
"""

import os
import sys


def _chain():
    """Run the sitecustomize that this one hides, if there is one."""
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        import importlib.util

        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _AfterTorch:
    """A finder that stays until torch's module body has really run; probes do not count."""

    def find_spec(self, name, path=None, target=None):
        """Give torch's own spec with a loader that tells us."""
        if name != "torch" or "torch" in sys.modules:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


class _Loader:
    """Torch's own loader, and then us."""

    def __init__(self, loader, finder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
            _attach()


def _attach():
    try:
        from traceparity.recorder import attach
    except ImportError as error:
        sys.stderr.write(
            f"traceparity: not recorded: {sys.executable} cannot import the recorder ({error});"
            " install traceparity there\n"
        )
        return
    attach.attach()


if "TRACEPARITY_RECORD" in os.environ:
    sys.meta_path.insert(0, _AfterTorch())
_chain()
