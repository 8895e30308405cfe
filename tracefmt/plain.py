"""Plain values: numbers, texts, lists and maps of them, as they are kept of a program's own.

Unlike payloads they may be nested in any way, so they are decoded with care: checked to be whole
before anything is built, small, and with few containers.
"""

import math
from collections.abc import Callable
from typing import Any

import msgpack

from traceparity.tracefmt import limits
from traceparity.tracefmt.errors import TraceFormatError

_MAX_CONTAINERS = 1 << 16
_TYPES = frozenset((type(None), bool, int, float, str, bytes, list, dict))
_NAN = float("nan")
_SIMPLE = frozenset((type(None), bool, int, str, bytes))
_DAMAGE = (ValueError, TypeError, msgpack.UnpackException, RecursionError)


def encode_plain(value: Any) -> bytes:
    """The canonical encoding of a plain value: msgpack with sorted keys.

    Tuples become lists, every NaN the same one, and what UTF-8 cannot hold is escaped.

    Raises:
        TypeError: The value is no plain data.
        ValueError: It is longer than a plain value may be, or nested too deeply.
        OverflowError: An integer needs more than 64 bits.
    """
    packed = msgpack.packb(_canonical(value), use_bin_type=True, unicode_errors="backslashreplace")
    assert packed is not None  # packb returns None only when it is given a buffer
    if len(packed) > limits.MAX_PLAIN:
        raise ValueError(f"a plain value of {len(packed)} bytes (limit {limits.MAX_PLAIN})")
    return bytes(packed)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a plain map has texts as keys")
        return {key: _canonical(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        # Lists of sample IDs are long, and have nothing to make canonical.
        if _SIMPLE.issuperset(map(type, value)):
            return value
        return [_canonical(item) for item in value]
    return _NAN if isinstance(value, float) and math.isnan(value) else value


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
    checked = _counted()
    value = msgpack.unpackb(
        encoded, raw=False, strict_map_key=True, list_hook=checked, object_hook=checked
    )
    if type(value) not in _TYPES:
        raise ValueError(f"a {type(value).__name__}")
    return value


def _counted() -> Callable[[Any], Any]:
    left = _MAX_CONTAINERS

    def check(container: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError("too many lists and maps")
        items = container.values() if isinstance(container, dict) else container
        if not _TYPES.issuperset(map(type, items)):
            raise ValueError("an item is no plain value")
        return container

    return check
