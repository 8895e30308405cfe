"""`docs/format.md` says what the code does, its examples are true and its reader reads."""

import contextlib
import re
from pathlib import Path

import msgpack
import numpy as np
import pytest
import xxhash
from trace_story import Seen, Step, sample, scalar, write

from traceparity.tracefmt import framing, limits
from traceparity.tracefmt.index import STEP
from traceparity.tracefmt.phase_digest import site_hash
from traceparity.tracefmt.records import Flag, Header, Kind, Phase, Site
from traceparity.tracefmt.rows import ROW, scalar_bytes, scalar_digest
from traceparity.tracefmt.source import open_file

DOCUMENT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
GOLDEN = Path(__file__).parent / "golden" / "v1.0-complete.trace"


def section(title):
    """The text under a heading, up to the next one of its level or above."""
    match = re.search(rf"^(#+) {re.escape(title)}$", DOCUMENT, re.MULTILINE)
    assert match, title
    end = re.compile(rf"^#{{1,{len(match[1])}}} ", re.MULTILINE).search(DOCUMENT, match.end())
    return DOCUMENT[match.end() : end.start() if end else None]


def rows(text):
    """The cells of all table rows."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def in_words(dtype):
    base, shape = dtype.subdtype or (dtype, ())
    name = base.str.lstrip("<|")
    return (
        " times ".join([*map(str, shape[:-1]), f"{shape[-1]} `{name}`"]) if shape else f"`{name}`"
    )


@pytest.mark.parametrize(("title", "dtype"), [("Chunk", ROW), ("Footer", STEP)])
def test_the_columns_are_those_of_the_code(title, dtype):
    written = {cells[0].strip("`"): cells[1] for cells in rows(section(title)) if len(cells) == 3}

    assert {name: in_words(dtype[name]) for name in dtype.names}.items() <= written.items()


@pytest.mark.parametrize(
    ("title", "kind"), [("Chunk", 2), ("Footer", 4), ("Header", 1), ("Tables", None)]
)
def test_every_key_is_described(tmp_path, title, kind):
    path = write(tmp_path / "a.trace", sample(1), header=Header(program="x"))
    keys = set()
    with contextlib.closing(open_file(path)) as source:
        for head in framing.scan(source, framing.PREFIX_SIZE):
            if head.kind == 3:
                continue
            payload = msgpack.unpackb(framing.read_payload(source, head))
            if head.kind == kind:
                keys |= set(payload)
            elif kind is None and "tables" in payload:
                keys |= set(payload["tables"])

    assert keys <= {cells[0].strip("`") for cells in rows(section(title))}


def test_the_limits_are_those_of_the_code():
    table = {cells[0].strip("`"): cells[1] for cells in rows(section("Limits"))[1:]}
    own = {"MAX_STEP", "MAX_VALUE", "MAX_FALSE_STARTS"}
    names = {name for name in vars(limits) if name.startswith("MAX_")}

    def number(text):
        return int(text.removesuffix(" MiB")) << (20 if text.endswith("MiB") else 0)

    assert {name: number(text) for name, text in table.items()} == {
        name: getattr(limits, name) for name in names - own
    }
    assert (limits.MAX_STEP, limits.MAX_VALUE) == (512 << 20, 1 << 30)
    assert limits.PART == 16 << 20
    assert f"{limits.MAX_FALSE_STARTS} false" in section("Limits")
    assert all(f"`{name}`" in section("Limits") for name in own)


def test_the_flags_phases_and_kinds_are_those_of_the_code():
    flags = [int(cells[0]) for cells in rows(section("Chunk")) if cells[0].isdigit()]

    assert flags == [flag.value for flag in Flag]
    assert ", ".join(f"{phase.value} {phase.label}" for phase in Phase) in DOCUMENT
    words = ", ".join(f"{kind.value} {kind.name.lower().replace('_', ' ')}" for kind in Kind)
    assert words.replace("sample ids", "sample IDs") in DOCUMENT
    kinds = ", ".join(f"{kind.value} {kind.name.lower()}" for kind in framing.RecordKind)
    assert f"kind: {kinds}" in DOCUMENT


def test_the_magic_numbers_are_those_of_the_code():
    for magic in (framing.MAGIC, framing.SYNC, framing.END_MAGIC):
        assert f"`{magic.hex(' ')}`" in DOCUMENT
    assert f"version {'.'.join(map(str, framing.VERSION))}\n" in DOCUMENT


def test_the_example_of_a_phase_digest_is_true(tmp_path, opened):
    digests = bytes(range(16)), bytes(range(15, -1, -1))
    step = Step(
        0,
        (
            Seen(component="block", call=0, digest=digests[0]),
            Seen(component="rng.torch", field="digest", flags=Flag.CONTEXT),
            Seen(component="block", call=1, digest=digests[1]),
        ),
    )
    trace = opened(write(tmp_path / "a.trace", [step]))
    text = section("Phase digests")
    entries = [bytes.fromhex(line) for line in text.splitlines() if line.startswith("    0fe9")]

    assert all(f"`{digest.hex()}`" in text for digest in digests)
    assert f"`{site_hash(Site(Phase.FORWARD, 'block', 'output[0]')):#x}`" in text
    assert [len(entry) for entry in entries] == [32, 32]
    assert xxhash.xxh3_128_digest(b"".join(entries)) == trace.steps[0].phase_digests[2]
    assert f"`{trace.steps[0].phase_digests[2].hex()}`" in text
    assert f"`{trace.content_digest}`" in section("Content digest")


def test_the_examples_of_value_digests_are_true():
    encoded = scalar_bytes(0.1)
    assert f"`{encoded.hex()}`: `{scalar_digest(encoded).hex()}`" in DOCUMENT
    assert scalar_bytes(float("nan")).hex(" ") in DOCUMENT

    seed = xxhash.xxh3_64_intdigest(b"float32:[3, 4]")
    data = np.arange(12, dtype="<f4").tobytes()
    assert f"`{seed:#x}`" in DOCUMENT
    assert f"`{xxhash.xxh3_128_hexdigest(data, seed=seed)}`" in DOCUMENT


def splitmix64(number):
    """As the page has it."""
    mask = (1 << 64) - 1
    z = (number + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


def sketch_by_the_page(elements):
    """As the page has it, with the sums in double precision."""
    block = 61 * 8192
    words = np.array([splitmix64(number) for number in range(2 * block // 64)], "<u8")
    signs = np.unpackbits(words.view("u1"), bitorder="little").astype(float) * 2 - 1
    sums = np.zeros(61)
    for number, start in enumerate(range(0, len(elements), block)):
        piece = elements[start : start + block].astype(float)
        offset = splitmix64((1 << 32) + number) % block if number else 0
        np.add.at(sums, np.arange(len(piece)) % 61, signs[offset : offset + len(piece)] * piece)
    return sums


@pytest.mark.parametrize("count", [1, 61, 1000, 3 * 61 * 8192 + 17])
def test_sketches_are_made_as_the_page_says(count):
    torch = pytest.importorskip("torch")
    from traceparity.recorder import sketch

    elements = np.random.default_rng(count).normal(size=count).astype(np.float32)
    made = sketch.Sketcher().sketch(torch.from_numpy(elements)).numpy()

    assert f"`{sketch.KIND}`" in DOCUMENT
    assert np.allclose(made, sketch_by_the_page(elements), rtol=1e-4, atol=1e-3 * count**0.5)


def test_tensor_digests_are_made_as_the_page_says():
    torch = pytest.importorskip("torch")
    from traceparity.recorder import digest

    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    made = digest.dense_digest(tensor, digest.seed_of("float32", (3, 4)))

    assert f"`{made.hex()}`" in section("Digest of a tensor")
    assert f"`{digest.KIND}`" in DOCUMENT


@pytest.fixture(scope="module")
def small_reader():
    (code,) = re.findall(r"```python\n(.*?)```", section("A small reader"), re.DOTALL)
    names = {}
    exec(compile(code, "format.md", "exec"), names)
    return names["read"]


def test_the_small_reader_reads(small_reader, tmp_path):
    story = sample()
    scalars = (scalar(0.25), scalar({"a": [1]}, "settings"))
    for path, steps in (
        (write(tmp_path / "a.trace", [*story, Step(9, scalars)], parts=2), 4),
        (GOLDEN, 2),
    ):
        header, found = small_reader(path)

        assert header["program"] == "train.py"
        assert len(found) == steps
    _, found = small_reader(tmp_path / "a.trace")
    assert [seen for _, _, seen in found[9]] == [0.25, {"a": [1]}]
    for step in story:
        for (site, call, seen), told in zip(found[step.number], step.seen, strict=True):
            assert site == (told.phase, told.component, told.field, told.location)
            assert call == told.call
            if told.kind == Kind.TENSOR:
                assert seen == (told.dtype, told.shape, told.value)
