"""What recording every step costs: step times side by side, and bytes on disk.

Each round runs the same training plain and at each capture level, one process after the other, so
that a busy neighbour hits all of them. Ratios are of the medians over all rounds and steps; the
first steps of a process, which warm up, are left out. `some` records each 10th step with sketches;
its ratios are of means over a multiple of ten steps. `cpu` is the ratio of CPU times, which other
programs disturb less. Needs tp-record on PATH.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Kind

HERE = Path(__file__).parent
STEPS = {"wide": 12, "tiny": 62, "trainer": 22, "trainer-wide": 12}
"""Steps of each process. The first two are sizes of a GPT, the others of a Llama that Hugging
Face's Trainer trains: one as large as the wide GPT, and one between the two, without a limit."""
WARM_UP = 2
PLAIN = "plain"
SOME = "some"
LEVELS = (PLAIN, "digest", "sketch", "values", SOME)
LIMITS = {("wide", "digest"): 1.15, ("wide", "sketch"): 1.30}
LIMITS |= {("trainer-wide", "digest"): 1.15, ("trainer-wide", "sketch"): 1.30}
LIMITS |= {(size, SOME): 1.03 for size in STEPS}
LIMITS |= {("tiny", "digest"): 1.6, ("tiny", "sketch"): 2.0}


@dataclass(slots=True)
class Cost:
    """What was measured at one level."""

    rounds: list[list[float]] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    bytes_per_tensor: float = 0.0
    bytes_per_step: float = 0.0

    def typical(self, level: str) -> float:
        """The seconds of a step; what some steps cost alone needs a mean over all of them."""
        return _middle(level)([seconds for steps in self.rounds for seconds in steps])

    def cpu(self, level: str) -> float:
        return _middle(level)(self.cpu_seconds)

    def add(self, seconds: dict[str, list[float]]) -> None:
        """Take in a run."""
        self.rounds.append(seconds["elapsed"][WARM_UP:])
        self.cpu_seconds += seconds["cpu"][WARM_UP:]

    def each_round(self, level: str) -> list[float]:
        return [_middle(level)(steps) for steps in self.rounds]


def _middle(level: str) -> Callable[[list[float]], float]:
    return statistics.fmean if level == SOME else statistics.median


def train(size: str, level: str, steps: int, trace: Path, ranks: int) -> dict[str, list[float]]:
    """Run the training once; returns the seconds of its steps by clock."""
    program = "trainer_steps.py" if size.startswith("trainer") else "gpt_steps.py"
    target = [str(HERE / program), size, "--steps", str(steps)]
    if ranks > 1:
        target = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            *target,
        ]
    what = ["--every", "10"] if level == SOME else ["--capture", level]
    record = ["tp-record", "--overwrite", *what, "-o", str(trace), "--"]
    command = [sys.executable, *target] if level == PLAIN else [*record, *target]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds: dict[str, list[float]] = json.loads(done.stdout)
    return seconds


def weigh(trace: Path, cost: Cost) -> None:
    """Bytes on disk for each tensor observation: of the whole file, and what a late step adds."""
    # Of several processes the first one stands for all.
    trace = trace / "rank0.trace" if trace.is_dir() else trace
    with open_trace(trace) as opened:
        columns = [opened.columns(step.number) for step in opened.steps]
        tensors = sum(int((part.kind == Kind.TENSOR).sum()) for part in columns)
        cost.bytes_per_tensor = trace.stat().st_size / tensors
        ends = [sum(step.chunks[-1]) for step in opened.steps[-3:-1]]
        cost.bytes_per_step = ends[1] - ends[0]


def measure(size: str, steps: int, rounds: int, levels: list[str], ranks: int) -> dict[str, Cost]:
    """Measure the levels in turn, several times."""
    costs = {level: Cost() for level in levels}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for level, cost in costs.items():
                trace = Path(folder) / f"{level}.trace"
                cost.add(train(size, level, steps, trace, ranks))
                if level not in (PLAIN, SOME) and not cost.bytes_per_tensor:
                    weigh(trace, cost)
                shutil.rmtree(trace) if trace.is_dir() else trace.unlink(missing_ok=True)
    return costs


def show(size: str, costs: dict[str, Cost]) -> None:
    """Print a table; `range` is the lowest and highest ratio of a round to its plain twin."""
    plain = costs[PLAIN]
    head = f"{size:12} {'ms/step':>9} {'ratio':>6} {'limit':>6} {'range':>12} {'cpu':>6}"
    print(f"\n{head} {'B/tensor':>9} {'B/step':>10}")
    for level, cost in costs.items():
        twins = zip(cost.each_round(level), plain.each_round(level), strict=True)
        ratios = [mine / base for mine, base in twins]
        limit = LIMITS.get((size, level))
        print(
            f"{level:12} {cost.typical(level) * 1e3:9.2f} "
            f"{cost.typical(level) / plain.typical(level):6.3f} "
            f"{limit or '':>6} {min(ratios):5.2f}..{max(ratios):5.2f} "
            f"{cost.cpu(level) / plain.cpu(level):6.3f} "
            f"{cost.bytes_per_tensor:9.1f} {cost.bytes_per_step:10.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=STEPS, action="append")
    parser.add_argument("--levels", nargs="+", default=list(LEVELS[1:]), choices=LEVELS[1:])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help=f"of each process (default: {STEPS})")
    parser.add_argument("--ranks", type=int, default=1, help="processes (DDP) that train")
    options = parser.parse_args()
    for size in options.size or ("wide", "tiny"):
        steps = options.steps or STEPS[size]
        show(size, measure(size, steps, options.rounds, [PLAIN, *options.levels], options.ranks))


if __name__ == "__main__":
    main()
