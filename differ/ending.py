"""What a trace says of the end of its program."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from traceparity.differ.result import Evidence
from traceparity.tracefmt.records import Phase, Site

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

_ENDED_BY = Site(Phase.STATE, "program", "ended_by")


def ended_by(trace: "Trace") -> str:
    """The exception that ended the program; empty where it came to its end, or nobody knows."""
    number = next((at for at, entry in enumerate(trace.sites) if entry.site == _ENDED_BY), None)
    if number is None or not trace.steps:
        return ""
    columns = trace.columns(trace.steps[-1].number)
    rows = np.flatnonzero(columns.site == number).tolist()
    return str(trace.scalar(columns, rows[-1])) if rows else ""


def ending(name: str, trace: "Trace") -> Iterator[Evidence]:
    """Why a run has no further steps, where its trace says it."""
    if error := ended_by(trace):
        yield Evidence("ending", None, f"the program of the {name} ended by an error: {error}")
