"""Globs over sites, the same for recording, showing and comparing."""

import re
from functools import lru_cache


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (
        ".*" if part == "*" else "." if part == "?" else re.escape(part)
        for part in re.split(r"([*?])", pattern)
    )
    return re.compile("".join(parts), re.DOTALL)


def glob_matches(pattern: str, text: str) -> bool:
    """Whether a glob covers a site; only ``*`` and ``?`` are special.

    Brackets are not: they are part of most fields, ``output[0]``.
    """
    return _compiled(pattern).fullmatch(text) is not None
