"""A real web server on this machine that gives parts of files, counts bytes, and can misbehave."""

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_PART = 1 << 20


class FileServer:
    """Serves a folder under several paths, each with manners of its own.

    ``/files/`` gives parts; ``/moved/`` redirects there; ``/whole/`` says that it gives no parts;
    ``/liar/`` does not say so and sends all; ``/cut/`` ends each answer too early; ``/private/``
    refuses; ``/broken/`` fails; ``/loop/`` redirects to itself; ``/silent/`` takes its time.

    Attributes:
        folder: What is served.
        sent: Bytes of all bodies sent.
        asked: ``(method, path, range)`` of each request.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent = 0
        self.asked: list[tuple[str, str, str]] = []
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self})
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def url(self, name: str, manners: str = "files") -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{manners}/{name}"

    def __enter__(self) -> "FileServer":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: FileServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Tests have nothing to read there."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        asked = self.headers.get("Range", "")
        self.owner.asked.append((self.command, self.path, asked))
        manners, _, name = self.path.partition("?")[0].lstrip("/").partition("/")
        if manners == "moved":
            self._reply(302, Location=f"/files/{name}")
        elif manners == "loop":
            self._reply(302, Location=self.path)
        elif manners == "silent":
            time.sleep(2)
            self.close_connection = True
        elif manners in ("private", "broken"):
            self._reply(403 if manners == "private" else 500)
        elif (self.owner.folder / name).is_dir():
            self._listing(self.owner.folder / name)
        elif not (self.owner.folder / name).is_file():
            self._reply(404)
        else:
            self._file(self.owner.folder / name, manners, _RANGE.fullmatch(asked))

    def _reply(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for key, value in {"Content_Length": "0", **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()

    def _listing(self, folder: Path) -> None:
        names = sorted(path.name for path in folder.iterdir())
        body = "".join(f'<a href="{name}">{name}</a>\n' for name in names).encode()
        self._reply(200, Content_Length=str(len(body)), Content_Type="text/html")
        if self.command == "GET":
            self.wfile.write(body)

    def _file(self, path: Path, manners: str, wanted: re.Match[str] | None) -> None:
        size = path.stat().st_size
        begin, end = 0, size
        gives_parts = manners in ("files", "cut")
        if wanted and gives_parts:
            begin, end = int(wanted[1]), min(int(wanted[2]) + 1, size)
        headers = {"Content_Length": str(end - begin)}
        if manners == "whole":
            headers["Accept_Ranges"] = "none"
        if wanted and gives_parts:
            headers["Content_Range"] = f"bytes {begin}-{end - 1}/{size}"
        self._reply(206 if wanted and gives_parts else 200, **headers)
        if self.command == "GET":
            self._send(path, begin, end - (end - begin) // 2 if manners == "cut" else end)

    def _send(self, path: Path, begin: int, end: int) -> None:
        if end < begin or self.path.startswith("/cut/"):
            self.close_connection = True
        with open(path, "rb") as stream:
            stream.seek(begin)
            while begin < end:
                data = stream.read(min(_PART, end - begin))
                try:
                    self.wfile.write(data)
                except OSError:
                    return
                self.owner.sent += len(data)
                begin += len(data)
