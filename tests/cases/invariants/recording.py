"""Records trainings in forks of this process, which has imported torch once."""

import json
import os
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from traceparity.recorder import attach, session


def record(
    train: Callable[[], None],
    out: Path,
    variables: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Record what a function trains; the recorder attaches as `tp-record` makes it attach.

    Raises:
        AssertionError: The training has failed; the message is its traceback.
    """
    _wait(_start(train, out, variables or {}, settings or {}), out)


def record_ranks(train: Callable[[int], None], out: Path, processes: int) -> None:
    """Record a training of several processes, ``train(rank)``, over gloo."""

    def grouped(rank: int) -> Callable[[], None]:
        def run() -> None:
            store = f"file://{out}.store"
            dist.init_process_group("gloo", store, rank=rank, world_size=processes)
            train(rank)
            dist.destroy_process_group()

        return run

    children = [_start(grouped(rank), out, {}, {}) for rank in range(processes)]
    for child in children:
        _wait(child, out)


def _start(
    train: Callable[[], None],
    out: Path,
    variables: Mapping[str, str],
    settings: Mapping[str, Any],
) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        warnings.simplefilter("ignore")
        order = {"out": str(out), "settings": settings, "session": "s", "rank": None}
        os.environ.update(variables)
        os.environ["TRACEPARITY_RECORD"] = json.dumps({**order, "verbose": False})
        attach.attach()
        train()
        recorder = session.current()
        assert recorder is not None
        recorder.finish()
        status = 0
    except BaseException:  # noqa: BLE001 - the parent raises it again
        out.with_suffix(f".{os.getpid()}").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def _wait(child: int, out: Path) -> None:
    _, status = os.waitpid(child, 0)
    error = out.with_suffix(f".{child}")
    assert os.waitstatus_to_exitcode(status) == 0, error.read_text() if error.exists() else status
