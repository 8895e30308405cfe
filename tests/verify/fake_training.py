"""A training that takes no torch and no time: a real process that leaves a made-up trace.

It reads what a recorded process is told in its environment, as the recorder does, and writes the
trace of a run whose numbers follow from the step alone.
"""

import argparse
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "differ"))

from synthetic import Run, write_trace

from traceparity.tracefmt.records import Flag, Phase

OPTIMIZER = "optimizer:head.weight:value"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--forget", action="store_true")
    parser.add_argument("--from-scratch", action="store_true")
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--fault", type=int)
    parser.add_argument("--nonfinite", action="store_true")
    parser.add_argument("--error")
    parser.add_argument("--no-trace", action="store_true")
    parser.add_argument("--session")
    parser.add_argument("--versions", type=json.loads, default={})
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--disturbed", action="store_true")
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--linger", action="store_true")
    parser.add_argument("--say", default="")
    return parser.parse_args()


def steps_of(options: argparse.Namespace) -> list[Any]:
    start = 0
    if options.resume:
        start = json.loads(options.resume.read_text())["step"]
        start = 0 if options.from_scratch else start
    steps = Run().steps(options.steps, start)
    if options.error:
        steps[-1].add(Phase.STATE, "program", "ended_by", options.error, flags=Flag.CONTEXT)
    if options.forget:
        for row in [row for row in steps[0].rows if row.field.startswith("exp_avg")]:
            steps[0].remove(row.site)
    if options.noise:
        scale = 1 + options.noise * (time.time_ns() % 1000 + 1)
        for step in steps:
            step.change(OPTIMIZER, step.rows[step.find(OPTIMIZER)].value * scale)
    if options.fault is not None:
        value = steps[options.fault].rows[steps[options.fault].find(OPTIMIZER)].value
        steps[options.fault].change(OPTIMIZER, value * float("nan" if options.nonfinite else 2))
    return steps


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock that a recorded process takes to create its trace; nobody else may have it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def main() -> None:
    options = parse()
    told = json.loads(os.environ.get("TRACEPARITY_RECORD", "{}"))
    sys.stdout.write(f"{options.say}\n")
    if folder := os.environ.get("TRACEPARITY_END_STATE"):
        disturbed = bool(told) and options.disturbed
        weight = time.time_ns() if options.noise else 1 + disturbed
        (Path(folder) / "0.json").write_text(json.dumps({"model[0].weight": str(weight)}))
        options.no_trace |= not told
        options.status = options.status or 5 * (bool(told) and options.broken)
    sys.stderr.write("a warning\n")
    sys.stderr.flush()
    if options.hang:
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        time.sleep(600)
    if not options.no_trace:
        process = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
        out = Path(told["out"])
        with alone(out.parent):
            write_trace(
                out, steps_of(options), capture=told["settings"]["capture"],
                session=options.session or told["session"], process=process,
                versions={"torch": "2.13.0", **options.versions},
            )  # fmt: skip
        if options.linger:
            # As one that still writes: without its end.
            os.truncate(out, out.stat().st_size - 1)
            out.with_suffix(".lingers").touch()
            time.sleep(600)
    if options.out:
        (options.out / "last.json").write_text(json.dumps({"step": options.steps}))
    sys.exit(options.status)


if __name__ == "__main__":
    main()
