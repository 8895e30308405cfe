"""Run programs of one module, each in a fork of a process that has imported their framework once.

    runner.py MODULE JOBS.json

A job is ``{"name", "variant", "trace", "report", "folder"}``. In the fork the recorder attaches as
`tp-record` makes it attach, if the job has a trace; the report holds digests of every module and
optimizer that was made and of the random streams. Under `tp-record` itself no job has a trace.
"""

import importlib
import json
import os
import random
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "programs"), str(HERE.parent / "nonperturbation")]
driver = importlib.import_module("driver")


def run(programs: Any, job: dict[str, Any]) -> None:
    """Run one job in this process."""
    os.chdir(job["folder"])
    driver.keep_what_is_made()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    if job["trace"]:
        order = {
            "out": job["trace"], "settings": {}, "session": "s", "rank": None, "verbose": False,
        }  # fmt: skip
        os.environ["TRACEPARITY_RECORD"] = json.dumps(order)
        from traceparity.recorder import attach, session

        attach.attach()
        getattr(programs, job["name"])(job["variant"])
        current = session.current()
        assert current is not None
        current.finish()
    else:
        getattr(programs, job["name"])(job["variant"])
    Path(job["report"]).write_text(json.dumps(driver.report()))


def run_forked(programs: Any, job: dict[str, Any]) -> None:
    """Run one job in a fork; its failure is written in place of the report."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        run(programs, job)
    except BaseException:  # noqa: BLE001 - the test tells of it
        Path(job["report"]).write_text(json.dumps({"error": traceback.format_exc()}))
    finally:
        os._exit(0)


def warm_up() -> None:
    """What the first optimizer imports takes longer than all that a job does."""
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).zero_grad()


if __name__ == "__main__":
    module = importlib.import_module(sys.argv[1])
    jobs = json.loads(Path(sys.argv[2]).read_text())
    if len(jobs) == 1:
        run(module, jobs[0])
    else:
        warm_up()
        for each in jobs:
            run_forked(module, each)
