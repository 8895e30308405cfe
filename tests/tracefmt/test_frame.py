"""Columns are read alike, and found sound or not, whatever chunks were read before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceparity.tracefmt.codec import COLUMNS, ChunkInfo, pack_chunk, unpack_chunk, unpack_columns
from traceparity.tracefmt.errors import TraceFormatError
from traceparity.tracefmt.records import SKETCH_WIDTH, Kind, Phase, Site, SiteEntry
from traceparity.tracefmt.rows import ROW, Part
from traceparity.tracefmt.tables import Tables

INFO = ChunkInfo(0, 0, 0, 0, last=True, tail=False, micro_batches=1, parameters_digest=bytes(16))


def tables(sites):
    found = Tables(strings=["", "float32", "cpu"], shapes=[(), (4,)])
    found.sites += [SiteEntry(Site(Phase.FORWARD, str(n), "output[0]"), "") for n in range(sites)]
    return found


def part(sites, *, seed=0, lengths=None, shards=False):
    """Rows of some sites, with values of some lengths, or else with sketches."""
    table = np.zeros(len(sites), ROW)
    table["site"] = sites
    table["kind"] = Kind.SCALAR if lengths else Kind.TENSOR
    table["dtype"], table["shape"] = 1, 1
    table["digest"] = np.random.default_rng(seed).integers(1 << 63, size=(len(sites), 2))
    table["layout"] = int(shards)
    table["sketch_row"] = -1 if lengths else np.arange(len(sites))
    table["value_offset"] = -1
    if lengths:
        table["value_length"] = lengths
        table["value_offset"] = np.cumsum([0, *lengths[:-1]])
    sketches = np.zeros(0 if lengths else (len(sites), SKETCH_WIDTH), np.float32) + seed
    return Part(table, sketches.tobytes(), bytes(sum(lengths or [])))


def read(given_part, known):
    _, fields = unpack_chunk(pack_chunk(INFO, given_part, {}))
    return unpack_columns(fields, known)


@st.composite
def parts(draw):
    sites = draw(st.lists(st.integers(0, 3), max_size=4))
    lengths = draw(
        st.none() | st.lists(st.integers(0, 3), min_size=len(sites), max_size=len(sites))
    )
    return part(sites, seed=draw(st.integers(0, 2)), lengths=lengths, shards=draw(st.booleans()))


@given(st.lists(parts(), max_size=12))
def test_every_chunk_is_read_as_it_was_written_whatever_came_before(chunks):
    for each in chunks:
        columns = read(each, tables(4))

        for name in COLUMNS:
            assert np.array_equal(getattr(columns, name), each.table[name]), name
        assert columns.sketches.tobytes() == each.sketches
        assert columns.values == each.values


def test_what_two_steps_share_is_made_once():
    first, second = (read(part([0, 1, 2], seed=seed), tables(3)) for seed in (1, 2))
    third = read(part([0, 1, 2], seed=3), tables(3))

    assert third.site is second.site
    assert not np.array_equal(first.digest, second.digest)


@pytest.mark.parametrize("sound_before", [0, 1, 2])
def test_sites_that_another_file_has_are_no_sites_of_this_one(sound_before):
    for _ in range(sound_before):
        read(part([0, 2]), tables(3))

    with pytest.raises(TraceFormatError, match="points outside"):
        read(part([0, 2]), tables(2))


@pytest.mark.parametrize("sound_before", [0, 1, 2])
@pytest.mark.parametrize("lengths", [None, [2, 3]])
def test_pointers_that_were_sound_are_not_where_less_lies_behind_them(sound_before, lengths):
    whole = part([0, 1], lengths=lengths)
    for _ in range(sound_before):
        read(whole, tables(2))
    cut = Part(whole.table, whole.sketches[: 4 * SKETCH_WIDTH], whole.values[:-1])

    with pytest.raises(TraceFormatError, match="points outside"):
        read(cut, tables(2))
