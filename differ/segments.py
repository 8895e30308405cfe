"""Runs in several parts: from which step on a part was done again by the next one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from traceparity.differ.errors import AlignmentError
from traceparity.differ.offset import find_offset
from traceparity.differ.policy import Policy
from traceparity.differ.sites import JointSites
from traceparity.differ.step_pair import Side
from traceparity.differ.step_view import Steps

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


def cuts_between(
    before: Mapping[int, "Trace"], after: Mapping[int, "Trace"]
) -> dict[int, int | None]:
    """For each rank the step of ``before`` that ``after`` begins with; None where there is none.

    A part whose start is no step's start goes on where the one before it ended.
    """
    return {
        rank: _cut(trace, after[rank]) if rank in after else None for rank, trace in before.items()
    }


def _cut(before: "Trace", after: "Trace") -> int | None:
    policy = Policy()
    sites = JointSites(before.sites, after.sites, policy)
    sides = [
        Side(Steps(trace, sites, table, policy))
        for trace, table in ((before, sites.reference), (after, sites.target))
    ]
    try:
        found = find_offset(sides[0], sides[1])
    except AlignmentError:
        return None
    return None if found.doubt else found.step
