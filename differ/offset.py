"""Finding the reference step at which a resumed run begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceparity.differ.errors import AlignmentError
from traceparity.differ.names import optimizer_state_parameter
from traceparity.differ.sites import Ids
from traceparity.differ.step_pair import Side
from traceparity.tracefmt.records import Phase

_AFTER_PART = "the part before ended there"
_REMEDY = "declare it with --step-offset N"


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


def find_offset(reference: Side, target: Side, expected: int | None = None) -> tuple[int, str]:
    """The reference step whose starting state is the target's, and how it was recognised.

    Parameters decide; where several steps have them, or none, the optimizer's step counts and
    the schedulers' counters do, and at last where the target should begin.

    Args:
        reference: The reference.
        target: The target.
        expected: Where the part of the target before this one ended; None where nobody knows.

    Raises:
        AlignmentError: No step fits, or several do.
    """
    listing = _listing(target)
    sites = reference.steps.sites
    things = sites.things
    trained = {component for component, field in things if field == "requires_grad"}
    parameters = listing.chosen(
        lambda thing: things[thing][1] == "value" and (not trained or things[thing][0] in trained)
    )
    updates = listing.chosen(lambda thing: _is_update_count(*things[thing]))
    epochs = listing.chosen(lambda thing: things[thing][0].endswith(".last_epoch"))
    if not len(parameters) and not len(updates):
        if expected is not None:
            return expected, _AFTER_PART
        raise AlignmentError(f"the target lists no parameters when it begins: {_REMEDY}")
    equal, counted, scheduled = _fitting(reference, (parameters, updates, epochs))
    for found, how in (
        (equal, "parameter digest"),
        (_common(equal, counted), "parameter digest and optimizer step count"),
        (_common(equal, scheduled), "parameter digest and schedule"),
        ([] if equal else counted, "optimizer step count"),
    ):
        if len(found) == 1:
            return found[0], how
    if expected is not None and (expected in equal or not (equal or counted)):
        return expected, _AFTER_PART
    raise AlignmentError(_unclear(equal or counted))


def _common(left: list[int], right: list[int]) -> list[int]:
    return [number for number in left if number in right]


def _listing(target: Side) -> _Listing:
    steps = target.steps
    if not steps.numbers:
        raise AlignmentError("the target has no steps")
    view = steps[steps.numbers[0]]
    if not view.is_whole:
        raise AlignmentError(f"the target does not list the state that it begins with: {_REMEDY}")
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
            f"where the target begins is unknown: {_REMEDY}"
        )
    listed = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
    return (
        f"several steps of the reference start with the target's parameters ({listed}): {_REMEDY}"
    )
