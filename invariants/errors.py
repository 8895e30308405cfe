"""Errors of invariants."""

from traceparity.tracefmt.errors import TraceparityError


class InvariantError(TraceparityError):
    """A file of invariants, or a choice of them, cannot be used."""
