"""What the memory of a process that reads traces is like."""

from functools import cache

from traceparity.tracefmt import limits

_BLOCK = limits.PART
"""Bytes of a block that is asked for and given back untouched."""


@cache
def keep_freed_memory() -> None:
    """Let what a step took serve the next one, instead of going back to the system each time.

    The C library hands large blocks back when they are freed, so that every step would take, and
    have cleared, all its pages anew: that cost more than all else that is done to read it. Having
    seen a block of some size freed once, glibc keeps blocks of up to that size, and up to twice as
    much of what is free. Where another library allocates, this does nothing.
    """
    bytes(_BLOCK)
