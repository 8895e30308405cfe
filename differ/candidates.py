"""The places of a block where two steps are not bit-equal; what they mean is judged later."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from traceparity.differ.matching import Matches, match_rows
from traceparity.differ.observation import Observation
from traceparity.differ.row_pairs import row_pairs
from traceparity.differ.sites import Ids
from traceparity.differ.sketch_scan import surely_close, within_limits
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.step_view import Block, Index, StepView, stretch
from traceparity.tracefmt.records import Phase

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pair of rows with unequal digests, or a row that nothing answers.

    Attributes:
        order: Sorts the candidates of a block; random generators come after all that they move.
        site: Joint number.
        block: Where in the step it is.
        call: The how-manyth time the site was seen.
        reference: ``(step, row)`` of the reference's value; None where it has none.
        target: The same for the target.
        reference_row: The reference's row in this very step; None for a carried or absent value.
        target_row: The same for the target.
        known: False where the other side's value was not recorded, so that nothing can be said.
    """

    order: tuple[int, int, int, int]
    site: int
    block: Block
    call: int
    reference: Place | None
    target: Place | None
    reference_row: int | None
    target_row: int | None
    known: bool = True

    @property
    def structural(self) -> bool:
        """Whether one side has no such value at all."""
        return self.reference is None or self.target is None

    def observations(self, pair: StepPair) -> tuple[Observation | None, Observation | None]:
        """Both values."""
        return (
            pair.reference_side.carry.observation(self.reference) if self.reference else None,
            pair.target_side.carry.observation(self.target) if self.target else None,
        )


@dataclass(slots=True)
class Candidates:
    """What a block has.

    Attributes:
        found: The candidates, in order.
        compared: How many pairs of rows were compared.
        close: Whether some of them differ by so little that their sketches satisfy the rule.
    """

    found: list[Candidate]
    compared: int = 0
    close: bool = False


def candidates(pair: StepPair, block: Block) -> Candidates:
    """Compare the rows of a block."""
    return compared(pair, block, _matches(pair, block))


def compared(pair: StepPair, block: Block, matched: Iterable[Matches]) -> Candidates:
    """Compare rows of a block that were matched."""
    result = Candidates([])
    found = result.found
    for matches in matched:
        rows, target_rows = matches.reference, matches.target
        unequal = _unequal(pair, rows, target_rows, stretch(rows), stretch(target_rows))
        close = surely_close(pair, matches.reference[unequal], matches.target[unequal])
        result.close |= bool(close.any())
        found += _pairs(pair, block, matches, unequal[~close].tolist())
        found += _one_sided(pair, block, matches)
        result.compared += len(matches.reference)
    found.sort(key=lambda candidate: candidate.order)
    if block.phase == Phase.BACKWARD and all(_is_gradient(pair, each) for each in found):
        # Every activation's gradient is equal, so the order of the backward pass says nothing:
        # what was accumulated before differs. Parameters come in their own order.
        found.sort(key=lambda candidate: _parameter_number(pair, candidate))
    return result


def settled_blocks(pair: StepPair) -> dict[int, Candidates]:
    """The blocks without candidates, by number, where all rows of two steps answer in order.

    That is nearly every block of two runs that are equal within a tolerance: one look at the whole
    step tells what `candidates` would say of each.
    """
    pairs = row_pairs(pair)
    if pairs is None:
        return {}
    unequal = _unequal(pair, pairs.reference, pairs.target, pairs.mine, pairs.theirs)
    if len(unequal) == len(pairs.limit):
        is_close = within_limits(pair, pairs.mine, pairs.theirs, pairs.limit)
    else:
        chosen = stretch(pairs.reference[unequal]), stretch(pairs.target[unequal])
        is_close = within_limits(pair, *chosen, pairs.limit[unequal])
    unsettled = set(pairs.block[unequal[~is_close]].tolist())
    # Whether it was in this block or in that one that rows are close makes no difference.
    any_close = bool(is_close.any())
    return {
        number: Candidates([], size, any_close)
        for number, size in pair.reference.layout.block_sizes.items()
        if number not in unsettled
    }


def _parameter_number(pair: StepPair, candidate: Candidate) -> int:
    number = pair.sites.thing(pair.sites.sites[candidate.site].component, "value")
    return len(pair.sites.things) if number is None else number


def _is_gradient(pair: StepPair, candidate: Candidate) -> bool:
    return pair.sites.sites[candidate.site].field == "grad"


def _matches(pair: StepPair, block: Block) -> Iterator[Matches]:
    reference, target = pair.reference, pair.target
    rows, target_rows = _rows(reference, block), _rows(target, block)
    if not block.is_sequence:
        yield match_rows(reference, rows, target, target_rows, sequence=False)
        return
    # Buffers that change in a forward pass are things, not events of the sequence.
    for stateful in (False, True):
        mine = rows[reference.stateful[rows] == stateful]
        theirs = target_rows[target.stateful[target_rows] == stateful]
        if len(mine) or len(theirs):
            yield match_rows(reference, mine, target, theirs, sequence=not stateful)


def _rows(view: StepView, block: Block) -> Ids:
    return np.flatnonzero(view.judged & (view.block == block.number))


def _unequal(pair: StepPair, rows: Ids, target_rows: Ids, mine: Index, theirs: Index) -> Ids:
    """Which pairs of rows are not bit-equal; the indices choose the same rows."""
    left, right = pair.reference.columns, pair.target.columns
    digests, others = left.digest[mine], right.digest[theirs]
    differs = (digests[:, 0] != others[:, 0]) | (digests[:, 1] != others[:, 1])
    differs |= left.kind[mine] != right.kind[theirs]
    if not pair.same_digest_kind:
        differs |= left.kind[mine] == 0
    if pair.policy.align.device == "compare":
        differs |= _devices_differ(pair, rows, target_rows)
    return np.flatnonzero(differs)


def _pairs(
    pair: StepPair, block: Block, matches: Matches, indices: list[int]
) -> Iterator[Candidate]:
    for index in indices:
        row, target_row = int(matches.reference[index]), int(matches.target[index])
        yield Candidate(
            order=(2 * int(pair.sites.is_rng[pair.reference.site[row]]), row, 0, target_row),
            site=int(pair.reference.site[row]),
            block=block,
            call=int(pair.reference.columns.call[row]),
            reference=(pair.reference_step, row),
            target=(pair.target_step, target_row),
            reference_row=row,
            target_row=target_row,
        )


def _devices_differ(
    pair: StepPair, rows: Ids, target_rows: Ids
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    names = np.array(pair.reference_side.trace.strings, object)
    other_names = np.array(pair.target_side.trace.strings, object)
    mine = names[pair.reference.columns.device[rows]]
    theirs = other_names[pair.target.columns.device[target_rows]]
    return np.asarray(mine != theirs, np.bool_)


def _one_sided(pair: StepPair, block: Block, matches: Matches) -> Iterator[Candidate]:
    missing = _answers(pair.reference, matches.missing, pair.target, pair.target_side, block)
    for row, place, known in missing:
        yield Candidate(
            order=(_group(block, place), row, 0, 0),
            site=int(pair.reference.site[row]),
            block=block,
            call=int(pair.reference.columns.call[row]),
            reference=(pair.reference_step, row),
            target=place,
            reference_row=row,
            target_row=None,
            known=known,
        )
    after = dict(zip(matches.extra.tolist(), matches.extra_place.tolist(), strict=True))
    extra = _answers(pair.target, matches.extra, pair.reference, pair.reference_side, block)
    for row, place, known in extra:
        yield Candidate(
            order=(_group(block, place), after[row], 1, row),
            site=int(pair.target.site[row]),
            block=block,
            call=int(pair.target.columns.call[row]),
            reference=place,
            target=(pair.target_step, row),
            reference_row=None,
            target_row=row,
            known=known,
        )


def _group(block: Block, answer: Place | None) -> int:
    """Within ``state``, what exists on one side only comes after all unequal values."""
    return int(block.phase == Phase.STATE and answer is None)


def _answers(
    view: StepView, rows: Ids, other: StepView, other_side: Side, block: Block
) -> Iterator[tuple[int, Place | None, bool]]:
    """For each row without an answer: the value carried on the other side, and if it is known."""
    stateful = rows[view.stateful[rows]]
    places: dict[int, Place] = {}
    complete = True
    if len(stateful):
        things = np.unique(view.thing[stateful])
        before = other.stateful & (other.block <= block.number) & np.isin(other.thing, things)
        places = {thing: (other.number, row) for thing, row in other.last_rows(before).items()}
        wanted = [thing for thing in things.tolist() if thing not in places]
        if wanted and not other.is_whole:
            found = other_side.carry.find(wanted, other.number)
            places |= found.places
            complete = found.complete
    is_stateful = view.stateful[rows].tolist()
    for row, moves in zip(rows.tolist(), is_stateful, strict=True):
        place = places.get(int(view.thing[row])) if moves else None
        yield row, place, not moves or place is not None or complete
