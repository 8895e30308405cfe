"""Plain values: numbers, texts, lists and maps of them, as they are kept of a program's own.

Unlike payloads they may be nested in any way, so they are decoded with care: checked to be whole
before anything is built, small, and with few containers.
"""

import math
from collections.abc import Iterable
from typing import Any

import msgpack

from traceparity.tracefmt import limits
from traceparity.tracefmt.errors import TraceFormatError

_TYPES = frozenset((type(None), bool, int, float, str, bytes, list, dict))
_NAN = float("nan")
_SIMPLE = frozenset((type(None), bool, int, str, bytes))
_DAMAGE = (ValueError, TypeError, msgpack.UnpackException, RecursionError)


def encode_plain(value: Any) -> bytes:
    """The canonical encoding of a plain value: msgpack with sorted keys.

    Tuples become lists, every NaN the same one, and what UTF-8 cannot hold is escaped.

    Raises:
        TypeError: The value is no plain data.
        ValueError: It is longer or more deeply nested than a plain value may be.
        OverflowError: An integer needs more than 64 bits.
    """
    plain = value if type(value) in _SIMPLE else _Canonical().form(value, 0)
    packed = msgpack.packb(plain, use_bin_type=True, unicode_errors="backslashreplace")
    assert packed is not None  # packb returns None only when it is given a buffer
    if len(packed) > limits.MAX_PLAIN:
        raise ValueError(f"a plain value of {len(packed)} bytes (limit {limits.MAX_PLAIN})")
    return bytes(packed)


class _Canonical:
    """Makes one form of all equal values."""

    def __init__(self) -> None:
        self._left = limits.MAX_PLAIN_CONTAINERS

    def form(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            self._count(depth)
            if not all(isinstance(key, str) for key in value):
                raise TypeError("a plain map has texts as keys")
            return {key: self.form(value[key], depth + 1) for key in sorted(value)}
        if isinstance(value, list | tuple):
            self._count(depth)
            # Lists of sample IDs are long, and have nothing to make canonical.
            if _SIMPLE.issuperset(map(type, value)):
                return value
            return [self.form(item, depth + 1) for item in value]
        return _NAN if isinstance(value, float) and math.isnan(value) else value

    def _count(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0 or depth >= limits.MAX_PLAIN_DEPTH:
            raise ValueError("a plain value with too many lists and maps")


def decode_plain(encoded: bytes, *, limit: int = limits.MAX_PLAIN) -> Any:
    """A plain value from its encoding.

    Raises:
        TraceFormatError: The bytes are no such value.
    """
    if len(encoded) > limit:
        raise TraceFormatError(f"a plain value of {len(encoded)} bytes (limit {limit})")
    try:
        return _decoded(encoded)
    except _DAMAGE as error:
        problem = str(error) or type(error).__name__
        raise TraceFormatError(f"a plain value is damaged: {problem}") from error


def _decoded(encoded: bytes) -> Any:
    # A first pass that builds nothing shows that all items are there which a list's head claims,
    # so that the second pass allocates no more than the bytes warrant.
    skipper = msgpack.Unpacker(max_buffer_size=max(len(encoded), 1))
    skipper.feed(encoded)
    skipper.skip()
    if skipper.tell() != len(encoded):
        raise ValueError("bytes follow it")
    containers = _Containers()
    value = msgpack.unpackb(
        encoded,
        raw=False,
        strict_map_key=True,
        list_hook=containers.check_list,
        object_hook=containers.check_map,
    )
    if type(value) not in _TYPES:
        raise ValueError(f"a {type(value).__name__}")
    if containers.count > limits.MAX_PLAIN_DEPTH:
        _check_depth(value)
    return value


class _Containers:
    """Counts lists and maps as they are built, and checks what is in them."""

    def __init__(self) -> None:
        self.count = 0

    def check_list(self, items: list[Any]) -> list[Any]:
        self._check(items)
        return items

    def check_map(self, items: dict[str, Any]) -> dict[str, Any]:
        self._check(items.values())
        return items

    def _check(self, items: Iterable[Any]) -> None:
        self.count += 1
        if self.count > limits.MAX_PLAIN_CONTAINERS:
            raise ValueError("too many lists and maps")
        if not _TYPES.issuperset(map(type, items)):
            raise ValueError("an item is no plain value")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(limits.MAX_PLAIN_DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) in (list, dict)
        ]
        if not level:
            return
    raise ValueError("too deeply nested")
