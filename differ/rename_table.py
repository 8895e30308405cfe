"""A short rename table for pairs of names: modules instead of parameters, ``{i}`` for numbers."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from traceparity.differ.names import owner
from traceparity.differ.rename import Renames

_HOLES = "ijklmn"
Entry = tuple[str, str]


def rename_table(
    pairs: Mapping[str, str], outputs: tuple[Mapping[str, bytes], Mapping[str, bytes]] = ({}, {})
) -> list[Entry]:
    """Entries that turn the reference's name of every parameter into the target's.

    Args:
        pairs: Names of parameters and buffers in the reference and in the target.
        outputs: Digest of what each module gave, in the reference and in the target.
    """
    wanted = _modules(pairs)
    wanted |= _containers(wanted, outputs)
    entries = sorted(_general(wanted), key=_specific)
    table: list[Entry] = []
    for old, new, instances in entries:
        renames = Renames(table)
        if any(renames.path(name) != wanted[name] for name in instances):
            table.append((old, new))
    renames = Renames(table)
    table += [(old, new) for old, new in pairs.items() if renames.path(old) != new]
    return table


def _specific(entry: tuple[str, str, Sequence[str]]) -> tuple[int, int]:
    return entry[0].count("."), len(entry[0])


def _modules(pairs: Mapping[str, str]) -> dict[str, str]:
    """The target's module for each of the reference: where most of its parameters are."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for old, new in pairs.items():
        if owner(old) and owner(new):
            votes[owner(old)][owner(new)] += 1
    return {old: _winner(counted) for old, counted in votes.items() if _winner(counted)}


def _winner(votes: Counter[str]) -> str:
    """What got most votes; empty where two got as many."""
    ranked = votes.most_common(2)
    return "" if len(ranked) > 1 and ranked[0][1] == ranked[1][1] else ranked[0][0]


def _containers(
    modules: Mapping[str, str], outputs: tuple[Mapping[str, bytes], Mapping[str, bytes]]
) -> dict[str, str]:
    """The same for modules without parameters of their own, from what they contain."""
    known = dict(modules)
    found: dict[str, str] = {}
    deepest = max((name.count(".") for name in known), default=0)
    for depth in range(deepest, 0, -1):
        votes: dict[str, Counter[str]] = defaultdict(Counter)
        for old, new in known.items():
            if old.count(".") == depth and owner(old) not in known and owner(new):
                votes[owner(old)][owner(new)] += 1
        for old, counted in votes.items():
            if new := _winner(counted):
                known[old] = found[old] = _of_one_output(old, new, outputs)
    return found


def _of_one_output(
    old: str, new: str, outputs: tuple[Mapping[str, bytes], Mapping[str, bytes]]
) -> str:
    """The module itself or the one around it that gave what the reference's did.

    A module that was put between a module and its parts holds the same parameters, and gives
    something else.
    """
    wanted, around = outputs[0].get(old), new
    while wanted is not None and around:
        if outputs[1].get(around) == wanted:
            return around
        around = owner(around)
    return new


def _general(wanted: Mapping[str, str]) -> list[tuple[str, str, list[str]]]:
    """Entries with ``{i}`` where names differ in numbers alone; each with the names it is for."""
    groups: dict[str, list[str]] = defaultdict(list)
    for old in wanted:
        groups[_shape(old)].append(old)
    entries = []
    for names in groups.values():
        template = _template(names, wanted)
        if template:
            entries.append((*template, names))
        else:
            entries += [(old, wanted[old], [old]) for old in names]
    return entries


def _shape(name: str) -> str:
    return ".".join("#" if part.isdecimal() else part for part in name.split("."))


def _template(names: Sequence[str], wanted: Mapping[str, str]) -> Entry | None:
    """One entry for several names of one shape; None where there is none."""
    if len(names) < 2:
        return None
    olds = [name.split(".") for name in names]
    news = [wanted[name].split(".") for name in names]
    if len({len(parts) for parts in news}) > 1:
        return None
    columns = list(zip(*olds, strict=True))
    holes = {
        column: f"{{{_HOLES[number]}}}"
        for number, column in enumerate(
            dict.fromkeys(column for column in columns if len(set(column)) > 1)
        )
        if number < len(_HOLES)
    }
    old = [holes.get(column, column[0]) for column in columns]
    new = [holes.get(column, column[0]) for column in zip(*news, strict=True)]
    if any(len(set(column)) > 1 and column not in holes for column in zip(*news, strict=True)):
        return None
    used = [{part for part in parts if part.startswith("{")} for parts in (old, new)]
    return (".".join(old), ".".join(new)) if used[0] == used[1] else None
