"""Where the bytes of a trace come from: the one seam between the format and the place of a file."""

import contextlib
import errno
from pathlib import Path
from typing import BinaryIO, Protocol

from traceparity.tracefmt.location import Location, RemoteLocation


class Source(Protocol):
    """Gives any stretch of a file.

    Attributes:
        size: Length of the file in bytes when it was opened.
    """

    size: int

    def read_at(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on; fewer where the file ends before."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class StreamSource:
    """Reads from a stream that can be read from any place."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size = stream.seek(0, 2)

    def read_at(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on; fewer where the file ends before."""
        self._stream.seek(offset)
        return self._stream.read(size)

    def measure(self) -> int:
        """The length of the file now, which ``size`` is from here on."""
        self.size = self._stream.seek(0, 2)
        return self.size

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class RestingSource:
    """Reads a file of this machine that is open only while it is read.

    For the many traces of a large run: a process may hold a limited number of files open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.closing(open_file(path)) as source:
            self.size = source.size

    def read_at(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on; fewer where the file ends before."""
        with contextlib.closing(open_file(self._path)) as source:
            return source.read_at(offset, size)

    def close(self) -> None:
        """There is nothing to let go of."""


def open_source(place: Location, *, resting: bool = False) -> Source:
    """Whatever lies at a location.

    Args:
        place: The location.
        resting: Whether a file of this machine is held open only while it is read.

    Raises:
        OSError: It cannot be opened, or not be read from any place, as a pipe.
        ValueError: The path is none.
    """
    if isinstance(place, RemoteLocation):
        from traceparity.tracefmt.remote import open_remote

        return open_remote(place)
    return RestingSource(place) if resting else open_file(place)


def open_file(path: Path) -> StreamSource:
    """A file of this machine.

    Raises:
        OSError: It cannot be opened, or not be read from any place, as a pipe.
        ValueError: The path is none.
    """
    if path.is_fifo():
        # Opening it would wait for somebody to write to it.
        raise OSError(errno.ESPIPE, "a pipe; a trace is read from a file")
    # Unbuffered: a trace is read by whole records, so that a buffer would only be a further copy.
    stream: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115 - the source keeps it open
    try:
        return StreamSource(stream)
    except BaseException:
        stream.close()
        raise
