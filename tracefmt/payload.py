"""Payloads: the msgpack maps that records hold, read without building what nobody asked for.

A payload is a map of names to numbers, texts, byte strings and further such maps. Arrays of numbers
are byte strings that numpy views, so nothing in a payload takes more memory than its own bytes:
msgpack's own arrays, of which a few bytes can become a list of millions, are skipped unread.
"""

from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from traceparity.tracefmt.errors import TraceFormatError

_MAX_KEYS = 256
_MAX_MAPS = 64
_MAX_DEPTH = 8
_DAMAGE = (ValueError, TypeError, msgpack.UnpackException, RecursionError)


class Fields:
    """A map of a payload; each getter checks what it gives.

    Every getter raises `TraceFormatError` where the field is missing or of another type.
    """

    __slots__ = ("_fields", "_what")

    def __init__(self, what: str, fields: dict[str, Any]) -> None:
        self._what = what
        self._fields = fields

    def error(self, problem: str) -> TraceFormatError:
        """An error that says what is wrong with this map."""
        return TraceFormatError(f"the {self._what} is damaged: {problem}")

    def has(self, name: str) -> bool:
        """Whether there is a field of that name."""
        return name in self._fields

    def natural(self, name: str) -> int:
        """An integer from 0 on."""
        value = self._fields.get(name)
        if type(value) is not int or value < 0:
            raise self.error(f"{name!r} is no natural number")
        return value

    def boolean(self, name: str) -> bool:
        """A truth value."""
        value = self._fields.get(name)
        if type(value) is not bool:
            raise self.error(f"{name!r} is no truth value")
        return value

    def text(self, name: str) -> str:
        """A text."""
        value = self._fields.get(name)
        if type(value) is not str:
            raise self.error(f"{name!r} is no text")
        return value

    def data(self, name: str) -> bytes:
        """A byte string."""
        value = self._fields.get(name)
        if type(value) is not bytes:
            raise self.error(f"{name!r} is no byte string")
        return value

    def fields(self, name: str) -> "Fields":
        """A map inside this one."""
        value = self._fields.get(name)
        if type(value) is not dict:
            raise self.error(f"{name!r} is no map")
        return Fields(f"{self._what}'s {name}", value)

    def array(self, name: str, dtype: npt.DTypeLike, count: int | None = None) -> npt.NDArray[Any]:
        """A byte string as an array without a copy.

        Args:
            name: Name of the field.
            dtype: Type of an item; may have a shape of its own.
            count: How many items there must be; None for as many as there are.
        """
        value, item = self.data(name), np.dtype(dtype)
        base, shape = item.subdtype or (item, ())
        length = len(value) // item.itemsize if count is None else count
        if len(value) != length * item.itemsize:
            raise self.error(f"{name!r} has a wrong length")
        return np.frombuffer(value, base).reshape(length, *shape)


def pack_map(fields: dict[str, Any]) -> bytes:
    """The payload that holds ``fields``."""
    packed = msgpack.packb(fields, use_bin_type=True)
    assert packed is not None  # packb returns None only when it is given a buffer
    return bytes(packed)


def unpack_map(payload: bytes, what: str) -> Fields:
    """The map that a payload is.

    Raises:
        TraceFormatError: It is no such map, or is nested too deeply.
    """
    reader = _Reader(payload)
    try:
        if not _is_map(payload[:1]):
            raise ValueError("it is no map")
        fields = reader.map(0)
    except _DAMAGE as error:
        problem = str(error) or type(error).__name__
        raise TraceFormatError(f"the {what} is no sound payload: {problem}") from error
    return Fields(what, fields)


class _Reader:
    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._unpacker = msgpack.Unpacker(
            raw=False, strict_map_key=True, max_buffer_size=max(len(payload), 1)
        )
        self._unpacker.feed(payload)
        self._maps_left = _MAX_MAPS

    def map(self, depth: int) -> dict[str, Any]:
        unpacker, payload = self._unpacker, self._payload
        count = unpacker.read_map_header()
        self._maps_left -= 1
        if count > _MAX_KEYS or depth > _MAX_DEPTH or self._maps_left < 0:
            raise ValueError("too many fields or maps")
        fields: dict[str, Any] = {}
        for _ in range(count):
            if not _is_text(payload, unpacker.tell()):
                raise ValueError("a field's name is no text")
            name = unpacker.unpack()
            at = unpacker.tell()
            first = payload[at : at + 1]
            if _is_map(first):
                fields[name] = self.map(depth + 1)
            elif first in _ARRAYS_AND_EXTENSIONS:
                unpacker.skip()
                fields[name] = None
            else:
                fields[name] = unpacker.unpack()
        return fields


def _is_map(first: bytes) -> bool:
    return b"\x80" <= first <= b"\x8f" or first in (b"\xde", b"\xdf")


def _is_text(payload: bytes, at: int) -> bool:
    first = payload[at : at + 1]
    return b"\xa0" <= first <= b"\xbf" or first in (b"\xd9", b"\xda", b"\xdb")


_ARRAYS_AND_EXTENSIONS = frozenset(
    bytes([first])
    for first in (*range(0x90, 0xA0), 0xDC, 0xDD, 0xC1, *range(0xC7, 0xCA), *range(0xD4, 0xD9))
)
