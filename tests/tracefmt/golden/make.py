"""Makes the golden files of the current format version: ``python tests/tracefmt/golden/make.py``.

They show that every later reader reads what an earlier version wrote, so existing files are never
made anew. Those of version 1.0 hold ``STEPS``, the one of version 1.1 holds ``SHARDS``.
"""

import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parent)]

from trace_story import Seen, Step, scalar, sketch, write, write_step  # noqa: E402 - needs the path

from traceparity.tracefmt.records import Flag, Header, Kind, Phase, ProcessGroup  # noqa: E402
from traceparity.tracefmt.writer import Writer  # noqa: E402

HEADER = Header(
    program="train.py",
    arguments=("--lr", "3e-4"),
    process={"pid": 4242, "host": "golden"},
    rank=1,
    world_size=2,
    versions={"python": "3.11.7", "torch": "2.12.0"},
    environment={"deterministic": True, "threads": 2, "devices": ["cpu"], "git": None},
    capture={"level": "sketch", "digest": "xxh3-128"},
    session="golden",
    format_version=(1, 0),
)
SHARDS_HEADER = replace(
    HEADER,
    groups=(ProcessGroup("dp", (0, 1), "gloo"), ProcessGroup("", (1,))),
    format_version=(1, 1),
)
STEPS = (
    Step(
        0,
        (
            Seen(Phase.STATE, "wte.weight", "value", "", flags=Flag.STATEFUL | Flag.SNAPSHOT,
                 digest=bytes(range(16)), sketch=sketch(0.5)),
            scalar(0.1, "lr", phase=Phase.STATE, component="optimizer[0] group[0]",
                   location="train.py:9", flags=Flag.STATEFUL),
            scalar("5eed", "digest", phase=Phase.STATE, component="rng.torch",
                   location="", flags=Flag.CONTEXT),
            scalar([3, 1, None, "x"], "sample_ids", phase=Phase.DATA, component="loader[0]",
                   location="train.py:12", kind=Kind.SAMPLE_IDS),
            Seen(Phase.FORWARD, "", "output[0]", "train.py:14", shape=(), value=b"\0\0\x80?",
                 digest=bytes(range(1, 17)), stats=b"\0\0\x80?" * 3),
            Seen(Phase.FORWARD, "block", "output[0]", "train.py:3", call=1, microbatch=1,
                 digest=bytes(range(2, 18)), nonfinite=2, flags=Flag.NONFINITE),
        ),
        micro_batches=2,
        parameters_digest=bytes(range(100, 116)),
    ),
    Step(
        3,
        (
            Seen(Phase.GRADIENT, "wte.weight", "grad", "train.py:15", dtype="bfloat16",
                 device="cuda:0", shape=(3, 2), value=bytes(12), digest=bytes(range(3, 19)),
                 external=True),
            scalar(True, "skipped", kind=Kind.MARKER, location="train.py:16"),
            scalar({"eps": 1e-8, "betas": [0.9, 0.999], "名": -1}, "settings",
                   location="train.py:9", flags=Flag.CONTEXT),
        ),
        tail=True,
    ),
)  # fmt: skip
SHARDS = (
    Step(
        0,
        (
            Seen(Phase.OPTIMIZER, "wte.weight", "value", shape=(1, 3), whole=(3, 3), offset=(2, 0),
                 layout="Shard(dim=0) on dp=2", flags=Flag.STATEFUL | Flag.SHARDED,
                 sketch=sketch(1.5), stats=b"\0\0\x80?" * 3),
            scalar(0.1, "lr"),
        ),
    ),
    Step(1, (Seen(Phase.OPTIMIZER, "bias", "value", flags=Flag.STATEFUL),), tail=True),
)  # fmt: skip
NOTE = ("block.fused", "torch.compile: inside of a compiled region")


def make(path: Path, *, close: bool) -> None:
    """Write the story to a file: finished, or as a killed process leaves it inside step 7."""
    path.unlink(missing_ok=True)
    writer = Writer(path, lambda: HEADER)
    writer.not_observed(*NOTE)
    write_step(writer, STEPS[0], parts=2)
    write_step(writer, STEPS[1])
    if close:
        writer.close()
        return
    write_step(writer, Step(7, STEPS[0].seen[4:]), last=False)
    writer.abandon()
    with path.open("ab") as stream:
        stream.write(b"\xf1TPr\x02\x01\0\0half a record")


if __name__ == "__main__":
    write(HERE / "v1.1-shards.trace", SHARDS, header=SHARDS_HEADER)
