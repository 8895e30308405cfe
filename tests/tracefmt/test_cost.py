"""What a trace costs: bytes on disk, time to open, memory of the writer."""

import time
import tracemalloc

import numpy as np
import pytest
from trace_story import write

from traceparity.tracefmt import index, limits
from traceparity.tracefmt.framing import Compressor, RecordKind, trailer_bytes
from traceparity.tracefmt.index import Footer, Steps, pack_footer
from traceparity.tracefmt.records import Header, Phase
from traceparity.tracefmt.rows import Rows
from traceparity.tracefmt.tables import AT_FIRST, Interner
from traceparity.tracefmt.writer import Writer

LAYERS = 8
PARAMETERS = [
    f"blocks.{layer}.{name}.{kind}"
    for layer in range(LAYERS)
    for name in ("ln_1", "attn.qkv", "attn.proj", "ln_2", "mlp.up", "mlp.down")
    for kind in ("weight", "bias")
]


def gpt_step(writer, rows, chance):
    """One step as the recorder sees a GPT of 8 layers: random digests, real-looking numbers."""
    dtype, cpu = writer.string("float32"), writer.string("cpu")
    plan = [(Phase.FORWARD, name[:-7], "output[0]") for name in PARAMETERS[::2]]
    plan += [(Phase.FORWARD, name[:-7], "input[0]") for name in PARAMETERS[::2]]
    plan += [(Phase.BACKWARD, name[:-7], "grad_output[0]") for name in PARAMETERS[-2::-2]]
    plan += [(Phase.BACKWARD, name, "grad") for name in PARAMETERS]
    plan += [(Phase.OPTIMIZER, name, "value") for name in PARAMETERS]
    for state in ("exp_avg", "exp_avg_sq"):
        plan += [(Phase.OPTIMIZER, "optimizer[0]", f"{state}[{name}]") for name in PARAMETERS]
    digests = chance.bytes(16 * len(plan))
    scale = np.exp(chance.normal(size=len(plan)) * 2)
    numbers = (chance.normal(size=(len(plan), 3)) ** 2 * scale[:, None]).astype(np.float32)
    for number, (phase, component, field) in enumerate(plan):
        site = writer.site(phase, component, field, "train.py:57")
        low, high, norm = numbers[number].tolist()
        shape = writer.shape((512, 512 * (1 + number % 4)))
        rows.tensor(
            site, 0, 0, 0, dtype, cpu, shape, digests[16 * number :][:16], (-low, high, norm)
        )
    return len(plan)


def test_a_tensor_observation_takes_at_most_48_bytes(tmp_path):
    chance, seen = np.random.default_rng(0), 0
    writer, rows = Writer(tmp_path / "a.trace", Header), Rows()
    for step in range(40):
        seen += gpt_step(writer, rows, chance)
        writer.write(step, rows)
        rows.clear()
    writer.close()

    assert writer.rows_written == seen > 15_000
    assert (tmp_path / "a.trace").stat().st_size / seen < 48


def test_the_writers_memory_does_not_grow_with_the_steps(tmp_path):
    """A step adds its line of the index, and nothing else."""
    chance = np.random.default_rng(0)
    writer, rows = Writer(tmp_path / "a.trace", Header), Rows()
    sizes = {}
    tracemalloc.start()
    gpt_step(writer, rows, chance)
    for step in range(301):
        writer.write(step, rows)
        sizes[step] = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    writer.close()

    line = index.STEP.itemsize + index.CHUNK.itemsize
    assert line < 256
    assert (sizes[300] - sizes[100]) / 200 < 2 * line


def test_the_value_cache_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("traceparity.tracefmt.writer._KNOWN_VALUES", 4)
    writer = Writer(tmp_path / "a.trace", Header)
    for number in range(20):
        writer.value(number.to_bytes(16, "little"), b"v")
    writer.close()

    assert len(writer._value_offsets) <= 4


def test_a_chunk_never_exceeds_what_a_reader_believes(tmp_path, opened):
    """The largest rows and the largest tables fit into one chunk together."""
    tables = (
        limits.MAX_STRING_BYTES + 4 * limits.MAX_STRINGS + limits.MAX_SHAPES
        + 8 * limits.MAX_SHAPE_SIZES + 13 * limits.MAX_SITES + 8 * limits.MAX_NOTES
    )  # fmt: skip
    rows = limits.PART + max(limits.MAX_INLINE, limits.MAX_PLAIN)
    line = index.STEP.itemsize + index.CHUNK.itemsize

    assert tables + rows + 4096 < limits.MAX_CHUNK
    assert tables + line * limits.MAX_STEPS + limits.MAX_HEADER + 8192 < limits.MAX_FOOTER


@pytest.mark.slow
def test_a_trace_of_100_000_steps_opens_in_under_a_second(tmp_path, opened):
    """The footer is all that is read, so an index without its chunks will do."""
    count, start = 100_000, 16 + 32 + 120
    table, chunks = np.zeros(count, index.STEP), np.zeros(count, index.CHUNK)
    table["number"], table["whole"], table["chunks"] = np.arange(count), 1, 1
    noise = np.random.default_rng(0).integers(0, 1 << 63, (count, len(Phase), 2))
    table["phase_digests"] = noise
    chunks["offset"], chunks["length"] = start + 40 * np.arange(count), 40
    footer = Footer(Steps(table, chunks), True, "", "", b"")
    payload, end = pack_footer(footer, Interner().pack(AT_FIRST)), start + 40 * count
    path = write(tmp_path / "a.trace", [])
    with open(path, "r+b") as stream:
        stream.seek(end)
        stream.write(Compressor().record(RecordKind.FOOTER, payload, end) + trailer_bytes(end))

    began = time.process_time()
    trace = opened(path)
    took = time.process_time() - began

    assert len(trace.steps) == 100_000
    assert trace.steps[77_777].number == 77_777
    assert took < 1
