"""Which parameter of one program is which of another: by initial value, then by order of calls."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from traceparity.differ.errors import AlignmentError
from traceparity.differ.names import is_scaler, owner, scheduler_of
from traceparity.tracefmt.records import Flag, Kind, Phase

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


@dataclass(frozen=True, slots=True)
class Listing:
    """The parameters and buffers that a run starts with, in the order in which they are used.

    Attributes:
        digests: Digest by name.
        outputs: Digest of the first output of each module that the first step calls.
    """

    digests: dict[str, bytes]
    outputs: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class NamePairs:
    """Pairs of a name in the reference and one in the target.

    Attributes:
        pairs: The pairs.
        by_value: How many follow from the values alone.
        by_order: How many follow from the order of calls, among those of one value.
        reference_only: Names of the reference without a counterpart.
        target_only: Names of the target without a counterpart.
    """

    pairs: dict[str, str] = field(default_factory=dict)
    by_value: int = 0
    by_order: int = 0
    reference_only: list[str] = field(default_factory=list)
    target_only: list[str] = field(default_factory=list)


def listing_of(trace: "Trace", side: str) -> Listing:
    """What a run starts with.

    Raises:
        AlignmentError: The trace does not list it.
    """
    steps = trace.steps
    columns = trace.columns(steps[0].number) if steps else None
    if columns is None or not (columns.flags & Flag.SNAPSHOT).any():
        raise AlignmentError(f"the {side} does not list the parameters that it starts with")
    called: dict[str, int] = {}
    digests: dict[str, bytes] = {}
    outputs: dict[str, bytes] = {}
    for row, number in enumerate(columns.site.tolist()):
        site = trace.sites[number].site
        if site.phase == Phase.FORWARD and not columns.flags[row] & Flag.STATEFUL:
            called.setdefault(site.component, row)
            if site.field == "output[0]":
                outputs.setdefault(site.component, columns.digest[row].tobytes())
        elif site.phase == Phase.STATE and site.field == "value":
            tensor = columns.kind[row] == Kind.TENSOR
            if tensor and not scheduler_of(site.component) and not is_scaler(site.component):
                digests.setdefault(site.component, columns.digest[row].tobytes())
    last = len(columns)
    ordered = sorted(digests, key=lambda name: called.get(owner(name), last))
    return Listing({name: digests[name] for name in ordered}, outputs)


def pair_names(reference: Listing, target: Listing) -> NamePairs:
    """Pair what has equal values; of equal values what is called in the same order."""
    found = NamePairs()
    rest = [list(reference.digests), list(target.digests)]

    def settle(pairs: Iterable[tuple[str, str]]) -> int:
        settled = dict(pairs)
        found.pairs |= settled
        taken = set(settled.values())
        rest[0] = [name for name in rest[0] if name not in settled]
        rest[1] = [name for name in rest[1] if name not in taken]
        return len(settled)

    same = [name for name in rest[0] if target.digests.get(name) == reference.digests[name]]
    settle((name, name) for name in same)
    found.by_value = settle(_unique(reference, target, rest[0], rest[1]))
    found.by_order = settle(_between(reference, target, rest, found.pairs))
    found.by_order += settle(_in_order(reference, target, rest[0], rest[1]))
    # Of one name and other values: what differs is for the comparison to say.
    settle((name, name) for name in rest[0] if name in set(rest[1]))
    found.reference_only, found.target_only = rest
    return found


def _classes(listing: Listing, names: Sequence[str]) -> dict[bytes, list[str]]:
    classes: dict[bytes, list[str]] = defaultdict(list)
    for name in names:
        classes[listing.digests[name]].append(name)
    return classes


def _unique(
    reference: Listing, target: Listing, left: Sequence[str], right: Sequence[str]
) -> Iterator[tuple[str, str]]:
    others = _classes(target, right)
    for digest, names in _classes(reference, left).items():
        if len(names) == len(others.get(digest, [])) == 1:
            yield names[0], others[digest][0]


def _in_order(
    reference: Listing, target: Listing, left: Sequence[str], right: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Values that as many names have on both sides: the n-th answers the n-th."""
    others = _classes(target, right)
    for digest, names in _classes(reference, left).items():
        if len(names) == len(others.get(digest, [])):
            yield from zip(names, others[digest], strict=True)


def _between(
    reference: Listing, target: Listing, rest: list[list[str]], pairs: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """The same between neighbours that are paired already: the surest way."""
    before = [
        _anchored(listing, names)
        for listing, names in ((reference, list(pairs)), (target, list(pairs.values())))
    ]
    numbers = {name: at for at, name in enumerate(pairs)}
    backwards = {new: numbers[old] for old, new in pairs.items()}
    groups: list[dict[tuple[int, bytes], list[str]]] = []
    for side, (listing, names) in enumerate(zip((reference, target), rest, strict=True)):
        grouped: dict[tuple[int, bytes], list[str]] = defaultdict(list)
        for name in names:
            anchor = before[side].get(name)
            number = -1
            if anchor is not None:
                number = numbers[anchor] if side == 0 else backwards[anchor]
            grouped[number, listing.digests[name]].append(name)
        groups.append(grouped)
    for key, names in groups[0].items():
        if len(names) == len(groups[1].get(key, [])):
            yield from zip(names, groups[1][key], strict=True)


def _anchored(listing: Listing, paired: Sequence[str]) -> dict[str, str]:
    """For each name the last one before it that is paired."""
    known, last, found = set(paired), None, {}
    for name in listing.digests:
        if name in known:
            last = name
        elif last is not None:
            found[name] = last
    return found
