"""Payloads are read without building what nobody asked for, and give what was packed."""

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.payload import unpack_map

NUMBERS = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1), st.floats(allow_nan=False), st.booleans(), st.none()
)
SKIPPED = st.lists(st.lists(st.integers(0, 300), max_size=20), max_size=20)
NAMES = st.text(max_size=40)


@given(
    numbers=st.dictionaries(NAMES, NUMBERS, max_size=20),
    texts=st.dictionaries(NAMES, st.text(max_size=400), max_size=5),
    data=st.dictionaries(NAMES, st.binary(max_size=400), max_size=5),
    lists=st.dictionaries(NAMES, SKIPPED, max_size=5),
)
def test_every_field_is_read_as_msgpack_reads_it(numbers, texts, data, lists):
    """Lists of a newer version are passed over, wherever they lie."""
    groups = {"numbers": numbers, "lists": lists, "texts": texts, "data": data}

    fields = unpack_map(msgpack.packb(groups), "test")

    assert fields.fields("numbers")._fields == numbers
    assert fields.fields("texts")._fields == texts
    assert fields.fields("lists")._fields == dict.fromkeys(lists)
    assert {name: fields.fields("data").data(name) for name in data} == data


@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_are_a_map_or_an_error(noise, cut):
    """What is cut off or made up never ends in another error."""
    sound = msgpack.packb({"a": 1.5, "b": b"x" * 20, "c": [1, [2]], "d": "text", "e": {"f": -4}})
    for payload in (noise, b"\x82" + noise, sound[:cut], sound[:cut] + noise):
        try:
            unpack_map(payload, "test")
        except TraceFormatError:
            continue


def test_a_cut_payload_is_an_error():
    payload = msgpack.packb({"a": b"x" * 300, "b": 70000})

    for cut in range(len(payload)):
        with pytest.raises(TraceFormatError, match="the test is no sound payload"):
            unpack_map(payload[:cut], "test")


def test_an_array_is_a_view_of_the_payload():
    """The bulk of a trace is copied once, when it is unpacked, and not again."""
    numbers = np.arange(1000, dtype="<u4")
    payload = msgpack.packb({"column": numbers.tobytes()})

    array = unpack_map(payload, "test").array("column", "<u4", 1000)

    assert (array == numbers).all()
    assert np.shares_memory(array, np.frombuffer(payload, np.uint8))
