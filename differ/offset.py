"""Finding the reference step at which a resumed run begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceparity.differ.beginning import REMEDY, Beginning, Votes, listed
from traceparity.differ.errors import AlignmentError
from traceparity.differ.names import optimizer_state_parameter
from traceparity.differ.sites import Ids
from traceparity.differ.step_pair import Side
from traceparity.tracefmt.records import Phase

_AFTER_PART = "the part before ended there"


@dataclass(frozen=True, slots=True)
class _Listing:
    """What the target lists when it begins: things and their digests."""

    things: Ids
    digests: npt.NDArray[np.uint64]

    def chosen(self, keep: Callable[[int], bool]) -> "_Listing":
        """The part about some things."""
        mask = np.array([keep(thing) for thing in self.things.tolist()], bool)
        return _Listing(self.things[mask], self.digests[mask])

    def __len__(self) -> int:
        return len(self.things)


def find_offset(reference: Side, target: Side, expected: int | None = None) -> Beginning:
    """The reference step whose starting state is the target's, and how it was recognised.

    Parameters that an optimizer holds decide; where several steps have them, or none, the
    optimizer's step counts and the schedulers' counters do, and at last where the target should
    begin. Parameters that contradict what counts steps may not have been restored; see
    `Votes.settle`.

    Args:
        reference: The reference.
        target: The target.
        expected: Where the part of the target before this one ended; None where nobody knows.

    Raises:
        AlignmentError: No step fits, or several do.
    """
    listing = _listing(target)
    things = reference.steps.sites.things
    decisive = _decisive(things)
    parameters = listing.chosen(
        lambda thing: things[thing][1] == "value" and (not decisive or things[thing][0] in decisive)
    )
    updates = listing.chosen(lambda thing: _is_update_count(*things[thing]))
    states = listing.chosen(lambda thing: bool(optimizer_state_parameter(*things[thing])))
    epochs = listing.chosen(lambda thing: things[thing][0].endswith(".last_epoch"))
    if not len(parameters) and not len(updates):
        if expected is not None:
            return Beginning(expected, _AFTER_PART)
        raise AlignmentError(f"the target lists no parameters when it begins: {REMEDY}")
    equal, counted, stated, scheduled = _fitting(reference, (parameters, updates, states, epochs))
    first = _first(reference)
    votes = Votes(first, equal, counted, stated, scheduled, has_updated=len(updates) > 0)
    found = votes.settle()
    if found is not None and found.step == expected:
        return found
    if expected is not None and votes.leave_open(expected, found):
        return Beginning(expected, _AFTER_PART)
    if found is None:
        raise AlignmentError(_unclear(votes.equal or votes.counted))
    return found


def _decisive(things: Sequence[tuple[str, str]]) -> set[str]:
    """The parameters that tell steps apart: those that an optimizer holds, if it is known.

    A teacher or an average of the weights, which none holds, may have been lost on the way.
    """
    valued = {component for component, field in things if field == "value"}
    for told_by in ("group", "requires_grad"):
        found = {component for component, field in things if field == told_by} & valued
        if found:
            return found
    return set()


def _first(side: Side) -> int:
    return side.steps.numbers[0] if side.steps.numbers else 0


def _listing(target: Side) -> _Listing:
    steps = target.steps
    if not steps.numbers:
        raise AlignmentError("the target has no steps")
    view = steps[steps.numbers[0]]
    if not view.is_whole:
        raise AlignmentError(f"the target does not list the state that it begins with: {REMEDY}")
    rows = np.flatnonzero(view.stateful & (view.phase == Phase.STATE))
    return _Listing(view.thing[rows], view.columns.digest[rows])


def _is_update_count(component: str, field: str) -> bool:
    return bool(optimizer_state_parameter(component, field)) and field.startswith("step[")


def _fitting(reference: Side, listings: Sequence[_Listing]) -> list[list[int]]:
    """For each listing the reference steps that start with all of it."""
    steps = reference.steps
    current = np.zeros((len(steps.sites.things), 2), np.uint64)
    fitting: list[list[int]] = [[] for _ in listings]
    for number in steps.numbers:
        view = steps[number]
        at_start = view.stateful & (view.phase == Phase.STATE)
        current[view.thing[at_start]] = view.columns.digest[at_start]
        if steps.entries[number].tail:
            break
        for listing, found in zip(listings, fitting, strict=True):
            if len(listing) and bool((current[listing.things] == listing.digests).all()):
                found.append(number)
        later = view.stateful & ~at_start
        current[view.thing[later]] = view.columns.digest[later]
    return fitting


def _unclear(found: Sequence[int]) -> str:
    if not found:
        return (
            "no step of the reference starts with the target's parameters or optimizer step count; "
            f"where the target begins is unknown: {REMEDY}"
        )
    steps = f"several steps of the reference start with the target's parameters ({listed(found)})"
    return f"{steps}: {REMEDY}"
