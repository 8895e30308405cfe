"""Declared renames: reference names as the target calls them."""

import re
from collections.abc import Iterable, Sequence

_HOLE = re.compile(r"{(\w+)}")
_BRACKETED = re.compile(r"(\w+)\[(.+)\]")
_NAMES = frozenset({"shared_with", "shares_storage_with", "group"})


def _compiled(old: str) -> re.Pattern[str]:
    """A pattern for a path and what is in it; ``{i}`` is one segment, the same each time."""
    parts, at, seen = [], 0, set()
    for hole in _HOLE.finditer(old):
        parts.append(re.escape(old[at : hole.start()]))
        name = hole[1]
        parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>[^.]+)")
        seen.add(name)
        at = hole.end()
    parts.append(re.escape(old[at:]))
    return re.compile("".join(parts) + r"(?P<rest_>(?:[. ].*)?)", re.DOTALL)


class Renames:
    """The rename map of a policy, longest pattern first."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        ordered = sorted(pairs, key=lambda pair: (pair[0].count("."), len(pair[0])), reverse=True)
        self._pairs = [(_compiled(old), new) for old, new in ordered]
        self._olds = [old for old, _ in ordered]

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def unused(self, names: Iterable[str]) -> list[str]:
        """The declared names that none of these is."""
        known = set(names)
        return [
            old
            for old, (pattern, _) in zip(self._olds, self._pairs, strict=True)
            if not any(map(pattern.fullmatch, known))
        ]

    def path(self, name: str) -> str:
        """The target's name of a module, parameter or buffer of the reference."""
        for pattern, new in self._pairs:
            if match := pattern.fullmatch(name):
                return _HOLE.sub(lambda hole: match[hole[1]], new) + match["rest_"]
        return name

    def field(self, component: str, name: str) -> str:
        """A field as the target writes it: optimizer state names its parameter in brackets."""
        if component.startswith("optimizer[") and (match := _BRACKETED.fullmatch(name)):
            return f"{match[1]}[{self.path(match[2])}]"
        return name

    def scalar(self, field: str, value: object) -> object:
        """A plain value as the target writes it: some name a parameter or a group."""
        if field in _NAMES and isinstance(value, str):
            return self.path(value)
        return value
