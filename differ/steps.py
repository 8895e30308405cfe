"""Lining up the steps of two traces."""

from dataclasses import dataclass

from traceparity.differ.beginning import Beginning
from traceparity.differ.errors import AlignmentError
from traceparity.differ.offset import find_offset
from traceparity.differ.policy import Policy
from traceparity.differ.step_pair import Side
from traceparity.tracefmt.records import Phase, StepEntry

_NOTHING = bytes(16)


@dataclass(frozen=True, slots=True)
class StepAlignment:
    """Which steps answer each other.

    Attributes:
        offset: Reference step of the target's step 0.
        how: Where the offset comes from.
        doubt: What of the target speaks for another one; empty where nothing does.
        pairs: Reference step and target step.
        reference_only: Steps of the reference that the target should have and has not.
        target_only: Steps of the target that the reference should have and has not.
    """

    offset: int
    how: str
    pairs: tuple[tuple[int, int], ...]
    reference_only: tuple[int, ...]
    target_only: tuple[int, ...]
    doubt: str = ""


def align_steps(reference: Side, target: Side, begins: Beginning) -> StepAlignment:
    """Line up steps, of which the target's first answers the one where it begins.

    Raises:
        AlignmentError: No step lines up with another.
    """
    offset = begins.step
    theirs = _trained(target)
    ours = [number for number in _trained(reference) if number >= offset]
    shifted = {number + offset for number in theirs}
    pairs = [(number, number - offset) for number in ours if number in shifted]
    pairs += _tails(reference, target, offset)
    if not pairs:
        raise AlignmentError(_nothing_lines_up(reference, target, offset))
    first = pairs[0][0]
    known = set(ours)
    return StepAlignment(
        offset=offset,
        how=begins.how,
        pairs=tuple(pairs),
        reference_only=tuple(number for number in ours if number not in shifted and number > first),
        target_only=tuple(
            number for number in theirs if number + offset not in known and number + offset > first
        ),
        doubt=begins.doubt,
    )


def step_offset(
    reference: Side,
    target: Side,
    policy: Policy,
    expected: int | None = None,
    *,
    goes_on: bool = False,
) -> Beginning:
    """The reference step that the target's first answers, and where that comes from.

    Args:
        reference: The reference, as stored.
        target: The target, as stored.
        policy: The declared relation.
        expected: Where the part before this one ended, if that is known.
        goes_on: Whether the target goes on where another part of it stopped.

    Raises:
        AlignmentError: It cannot be found.
    """
    align = policy.align
    if align.step_offset is not None:
        return Beginning(align.step_offset, "declared")
    if align.kind != "resume" and not goes_on:
        return Beginning(0, "declared")
    return find_offset(reference, target, expected)


def _trained(side: Side) -> list[int]:
    """The steps that count: a tail in which nothing was trained is none."""
    # Not the trace's own: to make its entries anew would cost as much as to compare them.
    entries = side.steps.entries.values()
    return [entry.number for entry in entries if not entry.tail or has_training(entry)]


def _tails(reference: Side, target: Side, offset: int) -> list[tuple[int, int]]:
    """The tails of both, where nothing was trained but state was changed in both."""
    last = [side.trace.steps[-1] for side in (reference, target) if side.trace.steps]
    if len(last) < 2 or any(not entry.tail or has_training(entry) for entry in last):
        return []
    changed = all(entry.phase_digests[Phase.STATE] != _NOTHING for entry in last)
    same = last[0].number == last[1].number + offset
    return [(last[0].number, last[1].number)] if changed and same else []


def has_training(entry: StepEntry) -> bool:
    """Whether anything decisive was seen in a step beside what it starts from."""
    return any(digest != _NOTHING for digest in entry.phase_digests[Phase.DATA :])


def first_phase(entry: StepEntry) -> str:
    """The phase of the first decisive observation of a step."""
    for phase in Phase:
        if entry.phase_digests[phase] != _NOTHING:
            return phase.label
    return Phase.STATE.label


def is_windowed(side: Side) -> bool:
    """Whether the recording was told to leave out steps, so that a step that lacks is no news."""
    return side.steps.windowed


def _nothing_lines_up(reference: Side, target: Side, offset: int) -> str:
    shift = f" with step offset {offset}" if offset else ""
    return (
        f"no step of the reference ({_range(reference)}) lines up with one of the target "
        f"({_range(target)}){shift}"
    )


def _range(side: Side) -> str:
    numbers = _trained(side)
    if not numbers:
        return "no steps"
    return f"steps {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"step {numbers[0]}"
