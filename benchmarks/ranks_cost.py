"""What comparing runs of many ranks costs: seconds and peak memory by the number of ranks.

Each rank has 10 steps of 1000 tensor observations; every eighth rank has other values in the second
half of its last step. Needs tp-diff on PATH, and half a gigabyte of disk for 1024 ranks.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from diff_cost import OBSERVATIONS, execute, template

from traceparity.tracefmt.records import Header
from traceparity.tracefmt.rows import Rows
from traceparity.tracefmt.writer import Writer

STEPS = 10


def write(path: Path, rank: int, ranks: int, *, differs: bool) -> None:
    """Write the trace of a rank."""
    kept = {"digest": "xxh3-128"}
    header = Header(program="synthetic", rank=rank, world_size=ranks, capture=kept)
    writer = Writer(path, lambda: header)
    table = template(writer, sketches=False)
    random = np.random.default_rng(rank)
    for step in range(STEPS):
        table["digest"] = random.integers(1 << 63, size=(OBSERVATIONS, 2), dtype=np.uint64)
        if differs and step == STEPS - 1:
            table["digest"][OBSERVATIONS // 2 :] += np.uint64(1)
        rows = Rows()
        rows.data += table.tobytes()
        writer.write(step, rows)
    writer.close()


def write_runs(folder: Path, ranks: int) -> tuple[Path, Path]:
    """Write the reference and the target."""
    reference, target = folder / "reference.trace", folder / "target.trace"
    for run in (reference, target):
        run.mkdir()
    for rank in range(ranks):
        file = reference / f"rank{rank}.trace"
        write(file, rank, ranks, differs=False)
        if rank % 8 == 7:
            write(target / file.name, rank, ranks, differs=True)
        else:
            shutil.copy(file, target / file.name)
    return reference, target


def report(ranks: int, jobs: int) -> None:
    """Compare two runs and print a line."""
    with tempfile.TemporaryDirectory() as folder:
        runs = write_runs(Path(folder), ranks)
        begin = time.perf_counter()
        used = execute(["tp-diff", "--jobs", str(jobs), *map(str, runs)])
        wall = time.perf_counter() - begin
    note = "" if used.status == 1 else f"  UNEXPECTED EXIT STATUS {used.status}"
    millions = 2 * ranks * STEPS * OBSERVATIONS / 1e6
    print(
        f"{ranks:5} ranks, {jobs} jobs: {used.seconds:6.1f} s CPU, {wall:6.1f} s, "
        f"{used.seconds / millions:5.2f} s CPU a million observations, "
        f"{used.mebibytes:4.0f} MiB{note}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    for ranks in options.ranks:
        for jobs in options.jobs:
            report(ranks, jobs)


if __name__ == "__main__":
    main()
