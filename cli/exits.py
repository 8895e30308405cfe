"""Exit statuses of all commands, and how errors leave them."""

from enum import IntEnum


class Exit(IntEnum):
    """What a judging command says with its exit status."""

    PASS = 0
    FAIL = 1
    ERROR = 2
    ABSTAIN = 3
    INTERRUPTED = 130
