"""What can be wrong with a trace: one class for each cause that a caller treats differently.

The tree of errors::

TraceparityError
    TraceError                 a trace cannot be used
        TraceNotFoundError     there is no such file or folder
        TraceLimitError        a recording outgrew what a trace can hold
        TraceFormatError       the bytes are no sound trace
            ForeignFileError   not a trace at all
            VersionError       written by a newer major version of the format
            TruncatedError     the file ends inside a record
            ChecksumError      a record does not match its checksum
    TraceExistsError           the output exists and may not be overwritten
"""


class TraceparityError(Exception):
    """Base of every error that traceparity raises on purpose; its text is one line for people."""


class TraceError(TraceparityError):
    """A trace cannot be used."""


class TraceNotFoundError(TraceError):
    """There is no such file or folder."""


class TraceLimitError(TraceError):
    """A recording outgrew what a trace can hold; what was written before is sound."""


class TraceFormatError(TraceError):
    """The bytes are no sound trace."""


class ForeignFileError(TraceFormatError):
    """The file does not begin as a trace does."""


class VersionError(TraceFormatError):
    """The trace was written by a newer major version of the format."""


class TruncatedError(TraceFormatError):
    """The file ends inside a record, as after a killed process.

    Attributes:
        offset: Where the last sound record ends, in bytes; everything before it can be used.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(f"the file ends inside a record; its first {offset} bytes are sound")
        self.offset = offset


class ChecksumError(TraceFormatError):
    """A record does not match its checksum.

    Attributes:
        offset: Where the damaged record begins, in bytes.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(f"the record at byte {offset} does not match its checksum")
        self.offset = offset


class TraceExistsError(TraceparityError):
    """The output exists and may not be overwritten."""
