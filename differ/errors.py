"""What can go wrong before anything is compared.

Errors
------
TraceparityError
    PolicyError                a policy is unreadable or declares something impossible
    AlignmentError             the traces cannot be lined up as declared; becomes ABSTAIN
"""

from traceparity.tracefmt.errors import TraceparityError


class PolicyError(TraceparityError):
    """A policy is unreadable or declares something impossible."""


class AlignmentError(TraceparityError):
    """The traces cannot be lined up as declared: evidence is missing or ambiguous."""
