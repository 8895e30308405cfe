"""Traces that are no files of this machine, read through fsspec: only the stretches asked for."""

import contextlib
import io
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from traceparity.tracefmt.location import RemoteLocation, without_secrets
from traceparity.tracefmt.source import Source, StreamSource

_BLOCK = 1 << 16
"""Bytes that are fetched at least: the next small record then costs no further request."""
_KEPT_BLOCKS = 4
SILENCE = 30.0
"""Seconds without a byte after which a web server is given up."""
_WEB = re.compile(r"(https?)://")
_NO_PARTS = "the server gives no parts of files (no range requests); download the trace first"


class RemoteError(OSError):
    """What lies elsewhere could not be read; its text is one line for people."""


class RemoteSource:
    """Reads stretches of a remote file, each with one request."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        with _explaining():
            self.size = stream.seek(0, 2)

    def read_at(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on; fewer where the file ends before.

        Raises:
            RemoteError: They did not come.
        """
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        if size > _BLOCK:
            return self._fetch(offset, end)
        first, last = offset // _BLOCK, (end - 1) // _BLOCK
        data = b"".join(self._block(number) for number in range(first, last + 1))
        return data[offset - first * _BLOCK : end - first * _BLOCK]

    def _block(self, number: int) -> bytes:
        block = self._kept.get(number)
        if block is None:
            begin = number * _BLOCK
            block = self._kept[number] = self._fetch(begin, min(begin + _BLOCK, self.size))
            if len(self._kept) > _KEPT_BLOCKS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return block

    def _fetch(self, begin: int, end: int) -> bytes:
        with _explaining():
            self._stream.seek(begin)
            data = self._stream.read(end - begin)
        if len(data) != end - begin:
            raise RemoteError(
                f"of the {end - begin} bytes from byte {begin} on only {len(data)} were sent"
            )
        return data

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()


def open_remote(place: RemoteLocation) -> Source:
    """A file elsewhere, or in an archive.

    Raises:
        FileNotFoundError: There is no such file.
        RemoteError: It cannot be read in parts, or not at all.
    """
    with _explaining():
        filesystem, path = _filesystem(place)
        # No cache: what is read is known to the byte.
        stream = filesystem.open(path, "rb", cache_type="none")
        if _is_archive(filesystem):
            return _unpacked(stream)
        # A web server that gives no parts, or does not say how long the file is.
        if getattr(stream, "size", 0) is None:
            stream.close()
            if filesystem.info(path).get("size") == 0:
                return StreamSource(io.BytesIO())
            raise RemoteError(_NO_PARTS)
        return RemoteSource(stream)


def list_remote(place: RemoteLocation) -> list[str] | None:
    """The names of the files in a folder elsewhere; None for what is no folder.

    Over HTTP, where a folder looks like any file, it is one whose URL ends with a slash.

    Raises:
        FileNotFoundError: There is no such folder.
        RemoteError: It cannot be listed.
    """
    with _explaining():
        filesystem, path = _filesystem(place)
        if not place.url.partition("::")[0].partition("?")[0].endswith("/"):
            is_http = "http" in _protocols(filesystem)
            if is_http or not filesystem.isdir(path):
                return None
        return [
            str(name).rstrip("/").rpartition("/")[2] for name in filesystem.ls(path, detail=False)
        ]


def child(place: RemoteLocation, name: str) -> RemoteLocation:
    """A file in a folder elsewhere."""
    folder, chain, rest = place.url.partition("::")
    folder, query, asked = folder.partition("?")
    return RemoteLocation(f"{folder.rstrip('/')}/{name}{query}{asked}{chain}{rest}")


def _filesystem(place: RemoteLocation) -> tuple[Any, str]:
    try:
        import fsspec.core
    except ImportError:
        raise RemoteError(
            "reading a trace from elsewhere needs fsspec: pip install 'traceparity[remote]'"
        ) from None
    options = {protocol: _patience() for protocol in set(_WEB.findall(place.url))}
    filesystem, path = fsspec.core.url_to_fs(place.url, **options)
    return filesystem, str(path)


def _patience() -> dict[str, Any]:
    """Options of a web filesystem, with which a server that says nothing more is given up."""
    try:
        from aiohttp import ClientTimeout
    except ImportError:
        # fsspec says what to install.
        return {}
    # No limit for a whole answer: a large value may take long and yet come.
    limits = ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
    return {"client_kwargs": {"timeout": limits}}


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _is_archive(filesystem: Any) -> bool:
    from fsspec.archive import AbstractArchiveFileSystem

    return isinstance(filesystem, AbstractArchiveFileSystem)


def _unpacked(stream: BinaryIO) -> Source:
    """A file in an archive, which can be read from its beginning only: so it is unpacked first."""
    copy = cast("BinaryIO", tempfile.TemporaryFile(buffering=0))  # noqa: SIM115 - the source keeps it
    try:
        with contextlib.closing(stream):
            shutil.copyfileobj(stream, copy, 1 << 20)
        return StreamSource(copy)
    except BaseException:
        copy.close()
        raise


@contextlib.contextmanager
def _explaining() -> Iterator[None]:
    """Whatever a filesystem of fsspec raises becomes one line."""
    try:
        yield
    except RemoteError:
        raise
    except FileNotFoundError as error:
        # Over HTTP fsspec says so of everything that stands in the way.
        cause = error.__cause__
        is_gone = getattr(cause, "status", None) in (404, 410)
        if not isinstance(cause, Exception) or isinstance(cause, LookupError) or is_gone:
            raise
        raise RemoteError(_line(cause)) from error
    except ImportError as error:
        # fsspec says what to install for this kind of URL.
        raise RemoteError(_line(error)) from error
    except Exception as error:  # each filesystem has errors of its own
        raise RemoteError(_line(error)) from error


def _line(error: Exception) -> str:
    if type(error).__name__ == "TooManyRedirects":
        return "the server redirects without end"
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return f"the server was silent for {SILENCE:g} s; try again, or download the trace first"
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return f"the server answered {status} {getattr(error, 'message', '')}".rstrip()
    if "range requests" in str(error):
        return _NO_PARTS
    lines = without_secrets(str(error)).split("\n")
    return lines[0] if lines[0] else type(error).__name__
