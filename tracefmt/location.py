"""Where a trace lies: a path of this machine, or the URL of a file elsewhere or in an archive."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

# A single letter before the colon is a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+(://|::)")
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_QUERY = re.compile(r"\?[^\s'\")>]+")


@dataclass(frozen=True, slots=True)
class RemoteLocation:
    """The URL of a trace that is no file of this machine; as a text without its secrets.

    Attributes:
        url: As given, e.g. ``https://host/a.trace`` or ``zip://a.trace::s3://bucket/runs.zip``.
    """

    url: str

    def __str__(self) -> str:
        return without_secrets(self.url)


Location = Path | RemoteLocation


def location(text: str | os.PathLike[str] | RemoteLocation) -> Location:
    """What a user's text for a trace means. ``file://`` is a path; any other scheme is a URL."""
    if isinstance(text, RemoteLocation):
        return text
    name = os.fspath(text)
    if not isinstance(text, str) or not _URL.match(name):
        return Path(name)
    parts = urlsplit(name)
    if parts.scheme == "file" and "::" not in name:
        return Path(unquote(parts.path))
    return RemoteLocation(name)


def without_secrets(text: str) -> str:
    """A text for people, without the passwords and the signed queries of URLs in it."""
    return _QUERY.sub("?...", _USER.sub("", text))
