"""Text files that people and tools write beside traces: policies, settings, invariants."""

import errno
from pathlib import Path

_MOST_MIB = 64


def read_text_file(path: Path) -> str:
    """The text of a file.

    Raises:
        OSError: It cannot be read, or does not end, as a device.
        UnicodeDecodeError: It is no text.
    """
    most = _MOST_MIB << 20
    with path.open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is longer than {_MOST_MIB} MiB")
    return data.decode("utf-8").replace("\r\n", "\n")
