"""What of a run is not in view, so that nothing can be said of it."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceparity.differ.policy import Coverage

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


class Lack(enum.Enum):
    """What of a run is not in view."""

    RANKS = enum.auto()
    STEPS = enum.auto()
    END = enum.auto()


@dataclass(frozen=True, slots=True)
class Unseen:
    """That something is not in view.

    Attributes:
        lack: What.
        reason: The sentence that tells it, with the remedy.
    """

    lack: Lack
    reason: str


def not_in_view(ranks: Mapping[int, "Trace"], *, last: bool = True) -> list[Unseen]:
    """Why batches of a run may lack from its traces; a part that another follows may end anyhow."""
    found: list[Unseen] = []
    world = max((trace.header.world_size for trace in ranks.values()), default=1)
    if world > len(ranks):
        there = "1 rank is" if len(ranks) == 1 else f"{len(ranks)} ranks are"
        told = f"the run had {world} ranks and {there} here; give the whole folder"
        found.append(Unseen(Lack.RANKS, told))
    for rank, trace in ranks.items():
        name = f"the recording of rank {rank}" if len(ranks) > 1 else "the recording"
        capture = trace.header.capture
        if capture.get("steps") or capture.get("every", 1) not in (None, 0, 1):
            told = f"{name} has a choice of steps only; record it without --steps, --every"
            found.append(Unseen(Lack.STEPS, told))
        reason = trace.incomplete_reason
        lossy = bool(trace.lost) or "lost" in reason or "damaged" in reason
        if not trace.complete and (last or lossy):
            told = f"{name} is incomplete ({reason or 'it did not end as it should'})"
            found.append(Unseen(Lack.END, told))
    return found


def left_out(ranks: Mapping[int, "Trace"], coverage: Coverage, *, has_ids: bool) -> str:
    """Why no batch at all was judged."""
    capture = next(iter(ranks.values())).header.capture if ranks else {}
    phases = capture.get("phases")
    if phases and "data" not in phases:
        return "the recording leaves out the phase data (--phases)"
    if has_ids:
        return "no batch was trained on"
    chosen = " and ".join(f"--{name}" for name in ("include", "exclude") if capture.get(name))
    if chosen:
        return f"the recording has no {_wanted(coverage)}; see its {chosen}"
    if coverage.id == "sampler" or not _fields(ranks):
        return "no batch of a DataLoader was trained on"
    return f"no batch has {coverage.id}; there are {', '.join(_fields(ranks))}"


def _wanted(coverage: Coverage) -> str:
    return "sample_ids" if coverage.id == "sampler" else coverage.id


def _fields(ranks: Mapping[int, "Trace"]) -> list[str]:
    fields = {
        entry.site.field
        for trace in ranks.values()
        for entry in trace.sites
        if entry.site.component.startswith("loader[") and entry.site.field.startswith("batch")
    }
    return sorted(fields)[:8]
