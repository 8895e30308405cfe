"""Strategies: any story that a trace can tell."""

import struct

from hypothesis import strategies as st
from trace_story import Seen, Step, scalar

from traceparity.tracefmt.records import SKETCH_WIDTH, Flag, Kind, Phase

NAMES = st.one_of(
    st.sampled_from(["", "blocks.0.attn", "blocks.1.mlp", "loader[0]", "naïve.層"]),
    st.text(st.characters(codec="utf-8"), max_size=8),
)
SINGLES = st.floats(width=32)
SHAPES = st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple)
U32 = st.integers(0, (1 << 32) - 1)
FLAGS = st.sampled_from([0, Flag.CONTEXT, Flag.STATEFUL, Flag.SNAPSHOT | Flag.STATEFUL, 1 << 14])
PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 63), (1 << 64) - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(codec="utf-8"), max_size=10),
        st.binary(max_size=10),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=4),
    ),
    max_leaves=12,
)


def bits(*numbers: float) -> bytes:
    """Single-precision numbers as a trace keeps them."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


TENSORS = st.builds(
    Seen,
    phase=st.sampled_from(Phase),
    component=NAMES,
    field=NAMES,
    location=st.just("train.py:1"),
    call=st.one_of(st.integers(0, 3), U32),
    microbatch=st.one_of(st.integers(0, 2), U32),
    flags=FLAGS.map(int),
    dtype=st.sampled_from(["float32", "bfloat16", "int64"]),
    device=st.sampled_from(["cpu", "cuda:0"]),
    shape=SHAPES,
    digest=st.binary(min_size=16, max_size=16),
    stats=st.tuples(SINGLES, SINGLES, SINGLES).map(lambda numbers: bits(*numbers)),
    nonfinite=st.sampled_from([0, 1, (1 << 32) - 1]),
    sketch=st.none() | SINGLES.map(lambda number: bits(*[number] * SKETCH_WIDTH)),
    value=st.none() | st.binary(max_size=80),
)
PLAINS = st.builds(
    scalar,
    PLAIN,
    NAMES,
    phase=st.sampled_from(Phase),
    component=NAMES,
    kind=st.sampled_from([Kind.SCALAR, Kind.SAMPLE_IDS, Kind.MARKER]),
    flags=FLAGS.map(int),
    call=st.integers(0, 3),
    location=st.just("train.py:1"),
)
SEEN = st.one_of(TENSORS, PLAINS)


def _in_order(steps: list[Step]) -> list[Step]:
    return sorted({step.number: step for step in steps}.values(), key=lambda step: step.number)


STORIES = st.lists(
    st.builds(
        Step,
        number=st.one_of(st.integers(0, 5), st.integers(0, (1 << 63) - 1)),
        seen=st.lists(SEEN, max_size=6).map(tuple),
        tail=st.booleans(),
        micro_batches=U32,
        parameters_digest=st.binary(min_size=16, max_size=16),
    ),
    max_size=4,
).map(_in_order)
