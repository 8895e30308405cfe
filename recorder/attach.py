"""Attach: begin to record in a process that `tp-record` started."""

import atexit
import json
import os
from multiprocessing import util
from pathlib import Path

from traceparity.recorder.guard import warn
from traceparity.recorder.session import Session, begin
from traceparity.recorder.settings import settings_from
from traceparity.tracefmt.errors import TraceparityError

VARIABLE = "TRACEPARITY_RECORD"
"""Holds, as JSON, what the recorder of a child process needs to know."""


def attach() -> None:
    """Begin to record as the environment says; a fault is one line on stderr and nothing more."""
    try:
        _begin()
    except (TraceparityError, ValueError, KeyError, OSError) as error:
        warn(f"not recorded: {error}")


def _begin() -> None:
    order = json.loads(os.environ[VARIABLE])
    session = begin(
        Session(
            Path(order["out"]),
            settings_from(order["settings"], "settings"),
            session=order["session"],
            rank=order["rank"],
            shared=True,
            verbose=order["verbose"],
        )
    )
    atexit.register(session.finish)
    # A forked child of multiprocessing ends without atexit, but runs its own finalizers.
    util.Finalize(session, session.finish, exitpriority=-100)
    os.register_at_fork(after_in_child=lambda: _begin_again(session))


def _begin_again(parent: Session) -> None:
    """In a forked child: the parent's file is not ours; a child that trains has one of its own."""
    parent.detach()
    attach()
