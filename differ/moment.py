"""Which things were equal at the moment just before a divergence."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from traceparity.differ.candidates import Candidate
from traceparity.differ.observation import Observation
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Phase


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the things that were asked for compare.

    Attributes:
        equal: Things with equal values on both sides.
        different: Things whose values differ.
    """

    equal: tuple[int, ...]
    different: tuple[int, ...]

    @property
    def known(self) -> bool:
        """Whether anything was there to compare."""
        return bool(self.equal or self.different)


def agreement(pair: StepPair, candidate: Candidate, things: Collection[int]) -> Agreement:
    """Compare the values that things have when the divergence comes."""
    asked, equal, different = list(things), [], []
    if pair.equal_before:
        # What neither side tells of in this step is as it was, and all steps before were equal.
        told = [view.thing[view.stateful] for view in (pair.reference, pair.target)]
        news = set(np.concatenate(told).tolist())
        equal = [thing for thing in asked if thing not in news and _on_both_sides(pair, thing)]
        asked = [thing for thing in asked if thing in news]
    reference = _values(pair.reference_side, pair.reference, candidate, asked)
    target = _values(pair.target_side, pair.target, candidate, asked)
    for thing in asked:
        left, right = reference.get(thing), target.get(thing)
        if left is None and right is None:
            continue
        if left is None or right is None or left.digest != right.digest:
            different.append(thing)
        else:
            equal.append(thing)
    return Agreement(tuple(equal), tuple(different))


def _values(
    side: Side, view: StepView, candidate: Candidate, things: Collection[int]
) -> dict[int, Observation]:
    block = candidate.block
    mask = view.block <= block.number if block.phase == Phase.STATE else view.block < block.number
    mask = mask & view.stateful & np.isin(view.thing, list(things))
    places = {thing: (view.number, row) for thing, row in view.last_rows(mask).items()}
    rest = [thing for thing in things if thing not in places]
    if rest and not view.is_whole:
        places |= side.carry.find(rest, view.number).places
    return {thing: side.carry.observation(place) for thing, place in places.items()}


def _on_both_sides(pair: StepPair, thing: int) -> bool:
    component, field = pair.sites.things[thing]
    numbers = [
        number
        for phase in Phase
        if (number := pair.sites.number(phase, component, field)) is not None
    ]
    return all(
        any(number in side.steps.table.location for number in numbers)
        for side in (pair.reference_side, pair.target_side)
    )


def told_now(
    pair: StepPair, phase: Phase, component: str, field: str, microbatch: int | None = None
) -> tuple[Observation | None, Observation | None]:
    """The last value that each side has of a site in this very step, context included."""
    number = pair.sites.number(phase, component, field)
    found = []
    for view in (pair.reference, pair.target):
        rows = [
            row
            for row in view.rows(phase, number)
            if microbatch is None or view.columns.microbatch[row] == microbatch
        ]
        found.append(view.observation(rows[-1]) if rows else None)
    return found[0], found[1]
