"""Attach: begin to record in a process that `tp-record` started."""

import atexit
import json
import os
from multiprocessing import util
from pathlib import Path

from traceparity.recorder.ending import unhandled
from traceparity.recorder.guard import warn
from traceparity.recorder.launch import VARIABLE
from traceparity.recorder.session import Session, begin, current
from traceparity.recorder.settings import settings_from

_LAST = -100
"""Priority among the finalizers of multiprocessing: after those of the program."""


def attach() -> None:
    """Begin to record as the environment says; a fault is one line on stderr and nothing more."""
    if not _begin():
        return
    atexit.register(_finish)
    _finish_as_child(attach)
    util.register_after_fork(attach, _finish_as_child)
    os.register_at_fork(after_in_child=_forked)


def _begin() -> bool:
    try:
        order = json.loads(os.environ[VARIABLE])
        session = Session(
            Path(order["out"]),
            settings_from(order["settings"], "settings"),
            session=order["session"],
            rank=order["rank"],
            shared=True,
            verbose=order["verbose"],
        )
        begin(session)
        _report_to(Path(order.get("attached", os.devnull)))
    except Exception as error:  # noqa: BLE001 - the program imports torch and knows nothing of us
        warn(f"not recorded: {type(error).__name__}: {error}")
        return False
    return True


def _report_to(attached: Path) -> None:
    """Tell `tp-record` that a process came this far; without it there is nobody to tell."""
    if attached.exists():
        attached.write_text("yes")


def _finish() -> None:
    session = current()
    if session is not None:
        session.finish(unhandled())


def _finish_as_child(_: object) -> None:
    # Children of multiprocessing end without atexit, but run the finalizers that were registered
    # in them; those of before their start are cleared.
    util.Finalize(None, _finish, exitpriority=_LAST)


def _forked() -> None:
    """In a forked child: the parent's trace is not ours; a child that trains has one of its own."""
    session = current()
    if session is not None and session.left_by_fork:
        _begin()
