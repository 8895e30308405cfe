"""What can go wrong before a case is judged.

Errors
------
TraceparityError
    CaseFileError    a case file is unreadable or declares something impossible
    TrackerError     a library that a result is to be logged by is not there
    WorkFolderError  the folder for what the cases write cannot be used
"""

from traceparity.tracefmt.errors import TraceparityError


class CaseFileError(TraceparityError):
    """A case file is unreadable or declares something impossible."""


class TrackerError(TraceparityError):
    """A library that a result is to be logged by is not there."""


class WorkFolderError(TraceparityError):
    """The folder for what the cases write cannot be used; what is in it is untouched."""
