"""Record PyTorch training runs and find where two of them first diverge.

Usage: ``with traceparity.record("a.trace"): train()``. Importing this package loads no torch:
``record`` is fetched from the recorder when it is first used.
"""

from typing import TYPE_CHECKING

from traceparity._version import __version__

if TYPE_CHECKING:
    from traceparity.recorder.session import record

__all__ = ["__version__", "record"]


def __getattr__(name: str) -> object:
    if name == "record":
        from traceparity.recorder.session import record

        return record
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
