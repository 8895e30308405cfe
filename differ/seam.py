"""The seam of a resume: a full listing on one side against the state carried on the other."""

from collections.abc import Iterator

import numpy as np

from traceparity.differ.candidates import Candidate, Candidates, compared
from traceparity.differ.carry import CarriedState
from traceparity.differ.holders import holders
from traceparity.differ.matching import Matches, match_rows
from traceparity.differ.names import (
    is_flag,
    is_group,
    optimizer_of,
    optimizer_state_parameter,
    scheduler_of,
)
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.step_view import StepView, block_of
from traceparity.tracefmt.records import Phase

STATE_BLOCK = block_of(0)


def is_seam(pair: StepPair) -> bool:
    """Whether exactly one side lists all that the step starts from."""
    return pair.reference.is_whole != pair.target.is_whole


def seam_candidates(pair: StepPair) -> Candidates:
    """Compare a full listing with the state that the other side carries to that step."""
    listed_is_target = pair.target.is_whole
    listed = pair.target if listed_is_target else pair.reference
    other = pair.reference_side if listed_is_target else pair.target_side
    number = pair.reference_step if listed_is_target else pair.target_step
    state = other.carry.start_of(number)
    rows = np.flatnonzero(listed.judged & listed.stateful & (listed.block == STATE_BLOCK.number))
    found = list(_candidates(pair, listed, rows.tolist(), state, listed_is_target))
    unasked = _gone(pair, state, other, number) | _later(pair, listed, listed_is_target)
    found = [each for each in found if _optimizer(pair, each) not in unasked]
    found.sort(key=lambda candidate: candidate.order)
    generators = compared(pair, STATE_BLOCK, [_generators(pair)])
    return Candidates(found + generators.found, len(rows) + generators.compared)


def _gone(pair: StepPair, state: CarriedState, other: Side, number: int) -> set[str]:
    """Optimizers that others have taken all parameters from before the seam."""
    components = {pair.sites.sites[site].component for site in state.sites.tolist()}
    optimizers = {optimizer_of(component) for component in components} - {""}
    if len(optimizers) < 2:
        return set()
    renames = pair.sites.renames if other is pair.reference_side else None
    held = {renames.path(name) if renames else name for name in holders(other, number)}
    return optimizers - held if held else set()


def _later(pair: StepPair, listed: StepView, listed_is_target: bool) -> set[str]:
    """Optimizers that join in a later step than the seam: one of a GAN whose turn comes then."""
    side = pair.target_side if listed_is_target else pair.reference_side
    sites, table = pair.sites.sites, side.steps.table
    in_state = [sites[number] for number in table.location if sites[number].phase == Phase.STATE]
    here = {optimizer_of(sites[number].component) for number in np.unique(listed.site).tolist()}
    return {optimizer_of(site.component) for site in in_state} - here - {""}


def _optimizer(pair: StepPair, candidate: Candidate) -> str:
    """The optimizer that a carried value without an answer belongs to; empty for any other."""
    if candidate.reference_row is not None or candidate.target_row is not None:
        return ""
    site = pair.sites.sites[candidate.site]
    if site.field != "group":
        return optimizer_of(site.component)
    renames, (reference, target) = pair.sites.renames, candidate.observations(pair)
    if reference is not None:
        return optimizer_of(renames.path(str(reference.plain)))
    return optimizer_of(str(target.plain)) if target is not None else ""


def _generators(pair: StepPair) -> Matches:
    """Random generators, whose states are told at the start of every step."""
    rows, target_rows = (
        np.flatnonzero(
            view.judged & (view.block == STATE_BLOCK.number) & pair.sites.is_rng[view.site]
        )
        for view in (pair.reference, pair.target)
    )
    return match_rows(pair.reference, rows, pair.target, target_rows, sequence=False)


def _candidates(
    pair: StepPair, listed: StepView, rows: list[int], state: CarriedState, listed_is_target: bool
) -> Iterator[Candidate]:
    index = {thing: at for at, thing in enumerate(state.things.tolist())}
    seen = {int(listed.thing[row]): row for row in rows}
    for thing, row in seen.items():
        at = index.get(thing)
        if at is None:
            yield _candidate(
                int(listed.site[row]),
                (1, row),
                (listed.number, row),
                None,
                listed_is_target,
                known=state.complete,
            )
        elif (listed.columns.digest[row] != state.digests[at]).any() or not pair.same_digest_kind:
            place = int(state.steps[at]), int(state.rows[at])
            yield _candidate(
                int(listed.site[row]), (0, row), (listed.number, row), place, listed_is_target
            )
    judged = ~pair.sites.ignored
    for at, thing in enumerate(state.things.tolist()):
        site = int(state.sites[at])
        if thing in seen or not state.decides[at] or not judged[site]:
            continue
        place = int(state.steps[at]), int(state.rows[at])
        rank = _listing_rank(*pair.sites.things[thing])
        yield _candidate(site, (2 + rank, at), None, place, listed_is_target)


def _candidate(
    site: int,
    order: tuple[int, int],
    listed: tuple[int, int] | None,
    carried: tuple[int, int] | None,
    listed_is_target: bool,
    *,
    known: bool = True,
) -> Candidate:
    row = listed[1] if listed else None
    return Candidate(
        order=(*order, 0, 0),
        site=site,
        block=STATE_BLOCK,
        call=0,
        reference=carried if listed_is_target else listed,
        target=listed if listed_is_target else carried,
        reference_row=None if listed_is_target else row,
        target_row=row if listed_is_target else None,
        known=known,
    )


def _listing_rank(component: str, field: str) -> int:
    """Where a kind of state stands in a full listing."""
    if optimizer_state_parameter(component, field):
        return 2
    if is_group(component):
        return 3
    if scheduler_of(component):
        return 4
    return 1 if is_flag(field) else 0
