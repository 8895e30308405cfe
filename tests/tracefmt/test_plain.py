"""Plain values have limits, the same when written and when read."""

import msgpack
import pytest

from traceparity.tracefmt import limits
from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.plain import decode_plain, encode_plain


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value, 1] if depth % 2 else {"a": value}
    return value


@pytest.mark.parametrize("depth", [1, 2, limits.MAX_PLAIN_DEPTH - 1, limits.MAX_PLAIN_DEPTH])
def test_values_of_some_depth_come_back(depth):
    assert decode_plain(encode_plain(nested(depth))) == nested(depth)


@pytest.mark.parametrize("depth", [limits.MAX_PLAIN_DEPTH + 1, 300, 2000])
def test_deeper_values_are_refused_on_both_sides(depth):
    """So that whoever walks a value needs no care."""
    with pytest.raises(ValueError, match="too many lists and maps"):
        encode_plain(nested(depth))
    with pytest.raises(TraceFormatError):
        decode_plain(b"\x91" * depth + b"\x01")


def test_many_containers_are_refused_on_both_sides():
    value = [[]] * limits.MAX_PLAIN_CONTAINERS

    with pytest.raises(ValueError, match="too many lists and maps"):
        encode_plain(value)
    with pytest.raises(TraceFormatError, match="too many lists and maps"):
        decode_plain(msgpack.packb(value))
    assert decode_plain(encode_plain(value[:-1])) == value[:-1]


def test_a_million_sample_ids_are_a_plain_value():
    ids = [*range(1_000_000)]

    assert decode_plain(encode_plain(ids)) == ids
