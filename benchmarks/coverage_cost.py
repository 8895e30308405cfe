"""What it costs to judge the coverage of millions of samples.

python benchmarks/coverage_cost.py [--samples 5000000] [--batch 256] [--epochs 1] [--ranks 1]
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from traceparity.tracefmt.records import Flag, Header, Kind, Phase
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.writer import Writer


def write(path: Path, ids: list[list[int]], batch: int, rank: int, ranks: int) -> None:
    """Write the loader's rows of a run; ``ids`` has the samples of each epoch of this rank."""
    header = Header(program="train.py", rank=rank, world_size=ranks, capture={"digest": "xxh3-128"})
    writer = Writer(path, lambda: header)
    names = ("sample_ids", "epoch", "worker", "dataset_length", "pass_end")
    sites = {name: writer.site(Phase.DATA, "loader[0]", name, "") for name in names}
    length, step = len(ids[0]) * ranks, 0
    for epoch, of_epoch in enumerate(ids):
        for start in range(0, len(of_epoch), batch):
            rows = Rows()
            told = scalar_bytes(of_epoch[start : start + batch])
            rows.plain(sites["sample_ids"], 0, 0, Kind.SAMPLE_IDS, 0, told)
            facts = {"epoch": epoch, "worker": None, "dataset_length": length}
            if start + batch >= len(of_epoch):
                facts["pass_end"] = {"epoch": epoch, "batches": -(-len(of_epoch) // batch)}
            for name, value in facts.items():
                encoded = scalar_bytes(value)
                rows.plain(sites[name], 0, 0, Kind.SCALAR, int(Flag.CONTEXT), encoded)
            writer.write(step, rows)
            step += 1
    writer.close(complete=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5_000_000, help="of all epochs together")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="write the traces here and leave them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = options.keep or Path(folder) / "run.trace"
        run.mkdir()
        size = options.samples // options.epochs
        shuffle = random.Random(0)
        epochs = [shuffle.sample(range(size), size) for _ in range(options.epochs)]
        for rank in range(options.ranks):
            own = [ids[rank :: options.ranks] for ids in epochs]
            write(run / f"rank{rank}.trace", own, options.batch, rank, options.ranks)
        del epochs
        print(f"{sum(file.stat().st_size for file in run.iterdir()) / 1e6:.0f} MB of traces")
        command = [sys.executable, "-m", "traceparity.cli.check", str(run)]
        done = subprocess.run([*command, "--coverage", "exactly_once"], check=False)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        print(f"exit {done.returncode}, {seconds:.1f} CPU seconds, at most {peak:.0f} MiB")


if __name__ == "__main__":
    main()
