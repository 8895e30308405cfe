"""What can go wrong before anything is compared.

Errors
------
TraceparityError
    PolicyError                a policy is unreadable or declares something impossible
    AlignmentError             the traces cannot be lined up as declared; becomes ABSTAIN
    WorkerError                another process found a trace unusable, or could not do its work
"""

from traceparity.tracefmt.errors import TraceparityError


class PolicyError(TraceparityError):
    """A policy is unreadable or declares something impossible."""


class AlignmentError(TraceparityError):
    """The traces cannot be lined up as declared: evidence is missing or ambiguous."""


class WorkerError(TraceparityError):
    """Another process that compares ranks found a trace unusable, or could not do its work."""
