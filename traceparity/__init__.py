"""Record PyTorch training runs and find where two of them first diverge.

Usage: ``with traceparity.record("a.trace"): train()``. Importing this package loads no torch:
``record`` is fetched from the recorder when it is first used, and so are the other functions.
"""

from typing import TYPE_CHECKING

from traceparity._version import __version__

if TYPE_CHECKING:
    from traceparity.recorder.session import record
    from traceparity.verify.same_training import assert_same_training

__all__ = ["__version__", "assert_same_training", "record"]


def __getattr__(name: str) -> object:
    if name == "record":
        from traceparity.recorder.session import record

        return record
    if name == "assert_same_training":
        from traceparity.verify.same_training import assert_same_training

        return assert_same_training
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
