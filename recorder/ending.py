"""How the program ended, where that was by an error that nobody caught."""

import sys

_MOST = 200


def unhandled() -> BaseException | None:
    """The exception that ended the main script; None where it came to its end, or exited."""
    if hasattr(sys, "ps1"):
        # At a prompt it is that of some line typed before.
        return None
    # `last_value` is what Python before 3.12 calls it.
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def told(error: BaseException) -> str:
    """An exception in one line."""
    text = next(iter(str(error).splitlines()), "")[:_MOST]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
