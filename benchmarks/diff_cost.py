"""What tp-diff costs: CPU seconds and peak memory, over traces of a million observations.

The traces are synthetic: 1000 steps of 1000 tensor observations over the phases of a step. Needs
tp-diff on PATH.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard

from traceparity.tracefmt import framing
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import SKETCH_WIDTH, Header, Kind, Phase
from traceparity.tracefmt.rows import ROW, Rows
from traceparity.tracefmt.writer import Writer

STEPS, OBSERVATIONS, MIB = 1000, 1000, 1 << 20
FIELDS = {
    Phase.FORWARD: "output[0]",
    Phase.BACKWARD: "grad_output[0]",
    Phase.GRADIENT: "grad",
    Phase.OPTIMIZER: "value",
}


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process used."""

    status: int
    seconds: float
    mebibytes: float


def write(
    path: Path, seed: int, *, differs_from: int | None, sketches: bool, noise: float = 0.0
) -> None:
    """Write a trace; from a step on, the second half of a step has other values.

    With ``noise`` all tensors of all steps differ from those without by that much, relatively.
    """
    writer = Writer(path, lambda: Header(program="synthetic"))
    table = template(writer, sketches)
    shared, other = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    for step in range(STEPS):
        table["digest"] = shared.integers(1 << 63, size=(OBSERVATIONS, 2), dtype=np.uint64)
        sketch = shared.standard_normal((OBSERVATIONS, SKETCH_WIDTH), np.float32)
        if differs_from is not None and step >= differs_from:
            half = OBSERVATIONS // 2
            table["digest"][half:] = other.integers(1 << 63, size=(half, 2), dtype=np.uint64)
            sketch[half:] *= 1.001
        if noise:
            table["digest"] += np.uint64(1)
            sketch += np.float32(noise) * other.standard_normal(sketch.shape, np.float32)
        rows = Rows()
        rows.data += table.tobytes()
        rows.sketches += sketch.tobytes() if sketches else b""
        writer.write(step, rows)
    writer.close()


def template(writer: Writer, sketches: bool) -> np.ndarray:
    """The rows of a step, without digests: the same sites in every step."""
    dtype, device = writer.string("float32"), writer.string("cpu")
    shape = writer.shape((64, 64))
    per_phase = OBSERVATIONS // len(FIELDS)
    sites = [
        writer.site(phase, f"blocks.{number // 10}.part{number % 10}", field)
        for phase, field in FIELDS.items()
        for number in range(per_phase)
    ]
    table = np.zeros(OBSERVATIONS, ROW)
    table["site"] = sites
    table["kind"] = Kind.TENSOR
    table["dtype"], table["device"], table["shape"] = dtype, device, shape
    table["stats"] = (-1.0, 1.0, 8.0)
    table["sketch_row"] = np.arange(OBSERVATIONS) if sketches else -1
    table["value_offset"] = -1
    return table


def execute(command: list[str]) -> Usage:
    """Run a command silently and wait for its own account, its modules compiled as installed."""
    program = shutil.which(command[0])
    if program is None:
        sys.exit(f"{command[0]} is not on PATH")
    silence = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    pid = os.posix_spawn(program, command, environment, file_actions=silence)
    _, status, used = os.wait4(pid, 0)
    return Usage(
        os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    )


def report(name: str, command: list[str], expected: int, limit: float, rounds: int) -> None:
    """Run a command some times, once more before so that all is compiled, and print a line."""
    execute(command)
    used = [execute(command) for _ in range(rounds)]
    seconds = statistics.median(one.seconds for one in used)
    memory = max(one.mebibytes for one in used)
    statuses = {one.status for one in used}
    note = "" if statuses == {expected} else f"  UNEXPECTED EXIT STATUS {sorted(statuses)}"
    print(
        f"{name:34} {seconds:6.2f} s CPU (limit {limit:.1f})  {memory:5.0f} MiB (limit 200){note}"
    )


def floor(paths: list[Path]) -> float:
    """CPU seconds to read and unpack all chunks of some traces, and to do nothing else."""
    begin = time.process_time()
    for path in paths:
        with open_trace(path) as trace, path.open("rb", buffering=0) as stream:
            unpacker = zstandard.ZstdDecompressor()
            for step in trace.steps:
                for offset, length in step.chunks:
                    stream.seek(offset)
                    unpacker.decompress(stream.read(length)[framing.HEAD_SIZE :])
    return time.process_time() - begin


def machine() -> tuple[float, float]:
    """CPU seconds of a Python that does nothing, and of a loop to 10 million."""
    begin = time.process_time()
    number = 0
    while number < 10_000_000:
        number += 1
    return execute([sys.executable, "-c", "pass"]).seconds, time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--sketches", action="store_true", help="traces with sketches (244 MB more)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        a, equal, late = (Path(folder) / f"{name}.trace" for name in ("a", "equal", "late"))
        for path, step in ((a, None), (equal, None), (late, 900)):
            write(path, seed=1, differs_from=step, sketches=options.sketches)
        start, loop = machine()
        print(f"machine: python -c pass {start:.2f} s CPU, a loop to 10 million {loop:.2f} s")
        print(f"traces of {a.stat().st_size / MIB:.0f} MiB")
        report("tp-diff --help", ["tp-diff", "--help"], 0, 0.3, options.rounds)
        report("equal", ["tp-diff", str(a), str(equal)], 0, 1.0, options.rounds)
        report("different from step 900 on", ["tp-diff", str(a), str(late)], 1, 2.0, options.rounds)
        if options.sketches:
            noisy, policy = Path(folder) / "noisy.trace", Path(folder) / "policy.toml"
            write(noisy, seed=1, differs_from=None, sketches=True, noise=1e-5)
            policy.write_text('[[compare]]\nsite = "*"\nrel_l2 = 1e-3\n')
            scan = ["tp-diff", "--policy", str(policy), str(a), str(noisy)]
            # A million observations a second, after start-up.
            report("all within a tolerance", scan, 0, 1.4, options.rounds)
            least = min(floor([a, noisy]) for _ in range(options.rounds))
            print(f"{'of it, to read and unpack both':34} {least:6.2f} s CPU")


if __name__ == "__main__":
    main()
