"""What it costs to learn invariants from a long trace, and to check one against them.

python benchmarks/invariants_cost.py [--observations 1000000] [--layers 100] [--keep FOLDER]

Prints the CPU time and the peak memory of ``tp-infer`` and ``tp-check`` on a made-up training of as
many linear layers, about ten observations of each in every step. With ``--trace`` it measures them
on a trace that was recorded.
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

GROUP = "optimizer[0] group[0]"
STATE, CONTEXT = int(Flag.STATEFUL), int(Flag.CONTEXT)


class Training:
    """Writes the steps of a made-up training."""

    def __init__(self, path: Path, layers: int) -> None:
        header = Header(program="train.py", capture={"digest": "xxh3-128"})
        self.writer = Writer(path, lambda: header)
        self.layers = [f"blocks.{number}.fc" for number in range(layers)]
        self.draw = random.Random(0)
        self.dtype, self.device = self.writer.string("float32"), self.writer.string("cpu")
        self.shape = self.writer.shape((16, 16))

    def tensor(self, rows: Rows, phase: Phase, component: str, field: str, flags: int = 0) -> None:
        site = self.writer.site(phase, component, field, "train.py:1")
        digest = self.draw.randbytes(16)
        rows.tensor(
            site, 0, 0, flags, self.dtype, self.device, self.shape, digest, (-1.0, 1.0, 8.0)
        )

    def plain(
        self,
        rows: Rows,
        phase: Phase,
        component: str,
        field: str,
        value: object,
        flags: int = 0,
        kind: Kind = Kind.SCALAR,
    ) -> None:
        site = self.writer.site(phase, component, field, "train.py:1")
        rows.plain(site, 0, 0, kind, flags, scalar_bytes(value))

    def step(self, number: int) -> int:
        rows = Rows()
        if number == 0:
            self.snapshot(rows)
        self.batch(rows, number)
        for layer in self.layers:
            self.tensor(rows, Phase.FORWARD, layer, "input[0]")
            self.tensor(rows, Phase.FORWARD, layer, "output[0]")
        self.tensor(rows, Phase.LOSS, "loss", "value")
        before = {"none": len(self.layers), "zero": 0, "kept": 0, "unknown": 0, "first_kept": ""}
        self.plain(rows, Phase.BACKWARD, "gradients", "before", before, CONTEXT)
        for layer in self.layers:
            self.tensor(rows, Phase.BACKWARD, layer, "grad_output[0]")
        for layer in self.layers:
            self.tensor(rows, Phase.BACKWARD, f"{layer}.weight", "grad")
        for layer in self.layers:
            self.tensor(rows, Phase.GRADIENT, f"{layer}.weight", "grad")
        for option, value in (("lr", 0.1), ("weight_decay", 0.0), ("eps", 1e-8)):
            self.plain(rows, Phase.OPTIMIZER, GROUP, option, value, STATE)
        for layer in self.layers:
            self.tensor(rows, Phase.OPTIMIZER, f"{layer}.weight", "value", STATE)
        for layer in self.layers:
            for entry in ("step", "exp_avg", "exp_avg_sq"):
                name = f"{entry}[{layer}.weight]"
                self.tensor(rows, Phase.OPTIMIZER, "optimizer[0]", name, STATE)
        self.writer.write(number, rows)
        return len(rows)

    def snapshot(self, rows: Rows) -> None:
        flags = STATE | int(Flag.SNAPSHOT)
        for layer in self.layers:
            weight = f"{layer}.weight"
            self.tensor(rows, Phase.STATE, weight, "value", flags)
            self.plain(rows, Phase.STATE, weight, "requires_grad", True, flags)
            self.plain(rows, Phase.STATE, weight, "group", GROUP, flags)
            self.plain(rows, Phase.STATE, layer, "training", True, flags)
            self.plain(rows, Phase.STATE, layer, "class", "Linear", CONTEXT)
        self.plain(rows, Phase.STATE, "optimizer[0]", "class", "Adam", CONTEXT)

    def batch(self, rows: Rows, number: int) -> None:
        self.tensor(rows, Phase.DATA, "loader[0]", "batch[0]")
        ids = [self.draw.randrange(1 << 40) for _ in range(16)]
        self.plain(rows, Phase.DATA, "loader[0]", "sample_ids", ids, kind=Kind.SAMPLE_IDS)
        for field, value in (("epoch", 0), ("index", number), ("dataset_length", 1 << 40)):
            self.plain(rows, Phase.DATA, "loader[0]", field, value, CONTEXT)


def measure(*command: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", *command], check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{command[0].rpartition('.')[2]:6} exit {done.returncode}  {seconds:6.2f} CPU s  "
        f"peak so far {after.ru_maxrss / 1024:5.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, default=1_000_000)
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--trace", type=Path, help="measure on this trace")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = options.trace
        if trace is None:
            trace = Path(folder) / "long.trace"
            training, written, step = Training(trace, options.layers), 0, 0
            while written < options.observations:
                written, step = written + training.step(step), step + 1
            training.writer.close(complete=True)
            print(f"{written:,} observations in {step:,} steps, {trace.stat().st_size >> 20} MiB")
        invariants = str(Path(folder) / "invariants.jsonl")
        measure("traceparity.cli.infer", str(trace), "-o", invariants)
        measure("traceparity.cli.check", str(trace), "--invariants", invariants)


if __name__ == "__main__":
    main()
