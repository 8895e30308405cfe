"""Recording a training in a fork of this process, which has imported torch once.

The recorder attaches in the fork exactly as `tp-record` makes it attach.
"""

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path


def record(
    train: Callable[..., None],
    arguments: list[str],
    out: Path | None,
    folder: Path,
    **settings: str,
) -> None:
    """Run a training in a forked child, recorded to ``out`` unless that is None."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, (folder / "error.txt").read_text()
        return
    status = 1
    try:
        if out is not None:
            order = {"out": str(out), "settings": settings, "session": "s", "rank": None}
            os.environ["TRACEPARITY_RECORD"] = json.dumps({**order, "verbose": False})
            from traceparity.recorder import attach, session

            attach.attach()
            train(*arguments)
            session.current().finish()
        else:
            train(*arguments)
        status = 0
    except BaseException:  # noqa: BLE001 - the parent raises it again
        (folder / "error.txt").write_text(traceback.format_exc())
    finally:
        os._exit(status)
