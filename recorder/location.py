"""Where in the user's program we are: the innermost line outside of libraries."""

import contextlib
import functools
import os
import sys
import sysconfig
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_LIBRARIES = tuple(
    {
        os.path.join(path, "")
        for key in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(key))
    }
)


# Further folders of packages may be on the path, as when environments share a torch.
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


@functools.lru_cache(maxsize=4096)
def _is_library(filename: str) -> bool:
    return (
        filename.startswith("<")
        or filename.startswith(_LIBRARIES)
        or any(folder in filename for folder in _PACKAGES)
        or os.path.realpath(filename).startswith(_LIBRARIES)
    )


def user_frames(limit: int = 1) -> list[tuple[str, int]]:
    """``(file, line)`` of the innermost ``limit`` frames of the user's program."""
    found: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < limit:
        ours = frame.f_globals.get("__name__", "").startswith("traceparity.")
        if not ours and not _is_library(frame.f_code.co_filename):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def user_location() -> str:
    """``file:line`` of the innermost user frame; empty where there is none."""
    frames = user_frames()
    if not frames:
        return ""
    name, line = frames[0]
    # A program may have removed the folder that it works in.
    with contextlib.suppress(OSError):
        name = min(os.path.relpath(name), os.path.abspath(name), key=len)
    return f"{name}:{line}"
