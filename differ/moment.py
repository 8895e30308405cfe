"""Which things were equal at the moment just before a divergence."""

from collections.abc import Collection

import numpy as np

from traceparity.differ.candidates import Candidate, Place
from traceparity.differ.likeness import Likeness
from traceparity.differ.observation import Observation
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Phase


def likeness(pair: StepPair, candidate: Candidate, things: Collection[int]) -> Likeness:
    """Compare the values that things have when the divergence comes."""
    asked, found = list(things), Likeness()
    if pair.equal_before:
        # What neither side tells of in this step is as it was, and all steps before were equal.
        told = [view.thing[view.stateful] for view in (pair.reference, pair.target)]
        news = set(np.concatenate(told).tolist())
        old = [thing for thing in asked if thing not in news and _on_both_sides(pair, thing)]
        found.same += [_name(pair, thing) for thing in old]
        asked = [thing for thing in asked if thing in news]
    reference = _places(pair.reference_side, pair.reference, candidate, asked)
    target = _places(pair.target_side, pair.target, candidate, asked)
    for thing in asked:
        if place := target.get(thing):
            site = pair.target_side.steps[place[0]].site[place[1]]
        elif place := reference.get(thing):
            site = pair.reference_side.steps[place[0]].site[place[1]]
        else:
            continue
        left, right = (
            side.carry.observation(places[thing]) if thing in places else None
            for side, places in ((pair.reference_side, reference), (pair.target_side, target))
        )
        found.take(pair, int(site), _name(pair, thing), left, right)
    return found


def _name(pair: StepPair, thing: int) -> str:
    return ".".join(filter(None, pair.sites.things[thing])).removesuffix(".value")


def _places(
    side: Side, view: StepView, candidate: Candidate, things: Collection[int]
) -> dict[int, Place]:
    block = candidate.block
    mask = view.block <= block.number if block.phase == Phase.STATE else view.block < block.number
    mask = mask & view.stateful & np.isin(view.thing, list(things))
    places = {thing: (view.number, row) for thing, row in view.last_rows(mask).items()}
    rest = [thing for thing in things if thing not in places]
    if rest and not view.is_whole:
        places |= side.carry.find(rest, view.number).places
    return places


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
