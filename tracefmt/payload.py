"""Payloads: the msgpack maps that records hold, read without building what nobody asked for.

A payload is a map of names to numbers, texts, byte strings and further such maps. Arrays of numbers
are byte strings that numpy views, so nothing in a payload takes more memory than its own bytes:
msgpack's own arrays, of which a few bytes can become a list of millions, are skipped unread.
"""

import struct
from collections.abc import Iterable
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.frame import Frame, Frames, Place

_MAX_KEYS = 256
_MAX_MAPS = 64
_MAX_DEPTH = 8
_DAMAGE = (ValueError, TypeError, IndexError, struct.error, msgpack.UnpackException)


class Fields:
    """A map of a payload; each getter checks what it gives.

    Every getter raises `TraceFormatError` where the field is missing or of another type.

    Attributes:
        frame: What a map inside this one shares with others that were read; None where frames
            were not asked for.
    """

    __slots__ = ("_fields", "_what", "frame")

    def __init__(self, what: str, fields: dict[str, Any], frame: Frame | None = None) -> None:
        self._what = what
        self._fields = fields
        self.frame = frame

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
        return bytes(self._view(name))

    def datas(self, names: Iterable[str]) -> tuple[bytes, ...]:
        """Some byte strings."""
        return tuple([bytes(self._view(name)) for name in names])

    def _view(self, name: str) -> memoryview:
        value = self._fields.get(name)
        if type(value) is not memoryview:
            raise self.error(f"{name!r} is no byte string")
        return value

    def fields(self, name: str) -> "Fields":
        """A map inside this one."""
        value = self._fields.get(name)
        if type(value) is not dict:
            raise self.error(f"{name!r} is no map")
        return Fields(f"{self._what}'s {name}", value)

    def byte_strings(self) -> tuple[tuple[str, bytes], ...] | None:
        """All fields with their names; None where one of them is no byte string."""
        if any(type(value) is not memoryview for value in self._fields.values()):
            return None
        return tuple((name, bytes(value)) for name, value in self._fields.items())

    def array(self, name: str, dtype: npt.DTypeLike, count: int | None = None) -> npt.NDArray[Any]:
        """A byte string as an array without a copy.

        Args:
            name: Name of the field.
            dtype: Type of an item; may have a shape of its own.
            count: How many items there must be; None for as many as there are.
        """
        value, item = self._view(name), np.dtype(dtype)
        base, shape = item.subdtype or (item, None)
        length = len(value) // item.itemsize if count is None else count
        if len(value) != length * item.itemsize:
            raise self.error(f"{name!r} has a wrong length")
        flat = np.frombuffer(value, base)
        return flat.reshape(length, *shape) if shape else flat


def fields_of(what: str, data: tuple[tuple[str, bytes], ...]) -> Fields:
    """A map of nothing but byte strings."""
    return Fields(what, {name: memoryview(value) for name, value in data})


def pack_map(fields: dict[str, Any]) -> bytes:
    """The payload that holds ``fields``."""
    packed = msgpack.packb(fields, use_bin_type=True)
    assert packed is not None  # packb returns None only when it is given a buffer
    return bytes(packed)


def unpack_map(payload: bytes, what: str, frames: Frames | None = None) -> Fields:
    """The map that a payload is.

    Args:
        payload: The payload.
        what: Names it in errors.
        frames: What is known of one of the maps in it, and learns from it.

    Raises:
        TraceFormatError: It is no such map, or is nested too deeply.
    """
    reader = _Reader(payload, frames)
    try:
        if not (payload and _is_map(payload[0])):
            raise ValueError("it is no map")
        fields = reader.map(0)
    except _DAMAGE as error:
        problem = str(error) or type(error).__name__
        raise TraceFormatError(f"the {what} is no sound payload: {problem}") from error
    return Fields(what, fields, reader.frame)


class _Reader:
    """Walks over a payload. Byte strings stay where they are: most of a payload is such."""

    def __init__(self, payload: bytes, frames: Frames | None) -> None:
        self.frame: Frame | None = None
        self._frames = frames
        self._places: dict[str, Place] = {}
        self._payload = payload
        self._view = memoryview(payload)
        self._at = 0
        self._maps_left = _MAX_MAPS
        self._skipper: msgpack.Unpacker | None = None

    def map(self, depth: int) -> dict[str, Any]:
        """The map that begins here.

        Raises:
            ValueError: It is none, or too large.
            IndexError, struct.error: The payload ends inside it.
        """
        first = self._byte()
        count = first & 0x0F if first & 0xF0 == 0x80 else self._number(_MAP[first])
        self._maps_left -= 1
        if count > _MAX_KEYS or depth > _MAX_DEPTH or self._maps_left < 0:
            raise ValueError("too many fields or maps")
        fields: dict[str, Any] = {}
        payload = self._payload
        for _ in range(count):
            name = self._name()
            first = payload[self._at]
            self._at += 1
            # Looked for first, as nearly all fields are byte strings, and the rest small numbers.
            if first in _BINARY:
                found = fields[name] = self._bytes(_BINARY[first])
                self._places[name] = self._at - len(found), self._at
            elif first < 0x80:
                fields[name] = first
            elif self._frames and name == self._frames.name and _is_map(first):
                self._at -= 1
                fields[name] = self._framed(self._frames, depth + 1)
            else:
                fields[name] = self._value(first, depth)
        return fields

    def _name(self) -> str:
        first = self._payload[self._at]
        begin = self._at + 1
        if first & 0xE0 != 0xA0:
            self._at = begin
            return self._text(first)
        self._at = end = begin + (first & 0x1F)
        data = self._payload[begin:end]
        if len(data) < end - begin:
            raise ValueError("it ends too early")
        return data.decode()

    def _framed(self, frames: Frames, depth: int) -> dict[str, Any]:
        begin = self._at
        self.frame = frames.find(self._payload, begin)
        if self.frame is not None:
            self._at += self.frame.size
            return self.frame.fields(self._view, begin)
        self._places = {}
        fields = self.map(depth)
        if all(type(value) is memoryview for value in fields.values()):
            self.frame = frames.learn(self._payload, begin, self._at, self._places)
        return fields if self.frame is None else self.frame.fields(self._view, begin)

    def _value(self, first: int, depth: int) -> Any:
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first in _NUMBER:
            return self._number(_NUMBER[first])
        if first in _CONSTANT:
            return _CONSTANT[first]
        if _is_map(first):
            self._at -= 1
            return self.map(depth + 1)
        if first in _ARRAYS_AND_EXTENSIONS:
            self._at -= 1
            return self._skip()
        return self._text(first)

    def _text(self, first: int) -> str:
        if first & 0xE0 == 0xA0:
            length = first & 0x1F
        elif first in _TEXT:
            length = self._number(_TEXT[first])
        else:
            raise ValueError("a field's name is no text")
        begin = self._at
        self._at += length
        data = self._payload[begin : self._at]
        if len(data) < length:
            raise ValueError("it ends too early")
        return data.decode()

    def _byte(self) -> int:
        self._at += 1
        return self._payload[self._at - 1]

    def _number(self, kind: struct.Struct) -> Any:
        (number,) = kind.unpack_from(self._payload, self._at)
        self._at += kind.size
        return number

    def _bytes(self, kind: struct.Struct) -> memoryview:
        (length,) = kind.unpack_from(self._payload, self._at)
        begin = self._at + kind.size
        self._at = begin + length
        found = self._view[begin : self._at]
        if len(found) < length:
            raise ValueError("it ends too early")
        return found

    def _skip(self) -> None:
        if self._skipper is None:
            self._skipper = msgpack.Unpacker(max_buffer_size=max(len(self._payload), 1))
            self._skipper.feed(self._payload)
        self._skipper.read_bytes(self._at - self._skipper.tell())
        self._skipper.skip()
        self._at = self._skipper.tell()


def _is_map(first: int) -> bool:
    return first & 0xF0 == 0x80 or first in _MAP


_U8, _U16, _U32 = struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I")
_MAP = {0xDE: _U16, 0xDF: _U32}
_BINARY = {0xC4: _U8, 0xC5: _U16, 0xC6: _U32}
_TEXT = {0xD9: _U8, 0xDA: _U16, 0xDB: _U32}
_NUMBER = {
    first: struct.Struct(f">{kind}")
    for first, kind in zip((*range(0xCA, 0xD0), *range(0xD0, 0xD4)), "fdBHIQbhiq", strict=True)
}
_CONSTANT = {0xC0: None, 0xC2: False, 0xC3: True}
_ARRAYS_AND_EXTENSIONS = frozenset(
    (*range(0x90, 0xA0), 0xDC, 0xDD, 0xC1, *range(0xC7, 0xCA), *range(0xD4, 0xD9))
)
