"""What holds for every plain value and every payload."""

import contextlib

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_stories import PLAIN

from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.payload import Fields, pack_map, unpack_map
from traceparity.tracefmt.plain import decode_plain, encode_plain

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 64) - 1), TEXTS,
    st.floats(allow_nan=False), st.binary(max_size=300),
)  # fmt: skip
MAPS = st.recursive(
    st.dictionaries(TEXTS, ATOMS, max_size=20),
    lambda inner: st.dictionaries(TEXTS, ATOMS | inner, max_size=4),
    max_leaves=5,
)


def reordered(value):
    """The same value with its maps in another order and its lists as tuples."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    if isinstance(value, list):
        return tuple(reordered(item) for item in value)
    return value


@given(PLAIN)
def test_plain_values_come_back(value):
    assert decode_plain(encode_plain(value)) == value


@given(PLAIN)
def test_equal_plain_values_have_one_encoding(value):
    assert encode_plain(reordered(value)) == encode_plain(value)


@given(st.text())
def test_any_text_can_be_kept(text):
    """Programs have names and arguments that are no Unicode."""
    assert isinstance(decode_plain(encode_plain([text, {text: text}])), list)


def as_dict(fields):
    """What a payload says, maps inside included."""
    return {
        name: as_dict(fields.fields(name)) if isinstance(value, dict) else value
        for name, value in fields._fields.items()
    }


@given(MAPS)
def test_payloads_come_back(fields):
    payload = pack_map(fields)

    assert as_dict(unpack_map(payload, "test")) == fields == msgpack.unpackb(payload)


@settings(max_examples=300)
@given(st.binary(max_size=60) | MAPS.map(pack_map).flatmap(
    lambda payload: st.integers(0, len(payload)).map(lambda cut: payload[:cut])
))  # fmt: skip
def test_bytes_that_are_no_payload_are_damage_and_nothing_else(payload):
    with contextlib.suppress(TraceFormatError):
        assert isinstance(unpack_map(payload, "test"), Fields)
    with contextlib.suppress(TraceFormatError):
        decode_plain(payload)
