"""Which optimizer holds which parameters: across a resume this tells them, not their numbers.

A run that goes on with a second optimizer has `optimizer[1]`, and the resumed one, which never had
the first, calls the same one `optimizer[0]`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from traceparity.differ.names import optimizer_of, scheduler_of
from traceparity.differ.policy import Policy
from traceparity.differ.step_pair import Side
from traceparity.tracefmt.records import Phase

Pairs = tuple[tuple[str, str], ...]


def holders(side: Side, number: int) -> dict[str, frozenset[str]]:
    """The parameters of each optimizer that holds any when a step starts, in its trace's words."""
    latest: dict[str, tuple[int, set[str]]] = {}
    begin = number
    while begin - 1 in side.steps.entries:
        begin -= 1
    for step in range(begin, number + 1):
        for parameter, optimizer in _told(side, step):
            if parameter not in latest or latest[parameter][0] != step:
                latest[parameter] = step, set()
            latest[parameter][1].add(optimizer)
    held: dict[str, set[str]] = {}
    for parameter, (_, optimizers) in latest.items():
        for optimizer in optimizers:
            held.setdefault(optimizer, set()).add(parameter)
    return {optimizer: frozenset(parameters) for optimizer, parameters in held.items()}


def _told(side: Side, step: int) -> Iterator[tuple[str, str]]:
    """A parameter and the optimizer that a step says to hold it."""
    if step not in side.steps.entries:
        return
    sites = side.steps.sites
    groups = [
        number
        for number, site in enumerate(sites.sites)
        if site.field == "group" and site.phase == Phase.STATE
    ]
    view = side.steps[step]
    for row in np.flatnonzero(np.isin(view.site, groups)).tolist():
        optimizer = optimizer_of(str(view.observation(row).plain))
        if optimizer:
            yield sites.sites[int(view.site[row])].component, optimizer


def numbered_alike(reference: Side, target: Side) -> bool:
    """Whether both have optimizers and schedulers of the same numbers, so that nothing is in doubt.

    A target that has no steps yet leaves nothing in doubt either.
    """
    return not target.steps.numbers or _numbered(reference) == _numbered(target)


def successors(reference: Side, target: Side, offset: int) -> Pairs:
    """Renames of what the reference numbers otherwise than a target that begins at ``offset``.

    What the reference has no more makes room for what has its number in the target.
    """
    if numbered_alike(reference, target):
        return ()
    names = [_numbered(reference), _numbered(target)]
    ours = holders(reference, offset)
    theirs = holders(target, target.steps.numbers[0])
    pairs = dict(_of_equal_sets(ours, theirs))
    if len(pairs) < len(theirs):
        return ()
    pairs |= _in_order(_joining(reference, offset), _joining(target, target.steps.numbers[0]))
    pairs |= _in_order(_stepping(reference, offset), _schedulers(target))
    if all(old == new for old, new in pairs.items()):
        return ()
    taken = set(pairs.values())
    free = _free_names({*names[0], *names[1]})
    for name in sorted(names[0] - pairs.keys()):
        if name in taken:
            kind = name.partition("[")[0]
            pairs[name] = next(each for each in free if each.startswith(f"{kind}["))
    return tuple((old, new) for old, new in pairs.items() if old != new)


def with_renames(policy: Policy, pairs: Pairs) -> Policy:
    """The policy with further renames."""
    align = policy.align
    return replace(policy, align=replace(align, rename=(*align.rename, *pairs)))


def _numbered(side: Side) -> set[str]:
    """The optimizers and schedulers that a trace names."""
    components = {entry.site.component for entry in side.trace.sites}
    found = {optimizer_of(name) or scheduler_of(name) for name in components}
    return found - {""}


def _of_equal_sets(
    ours: Mapping[str, frozenset[str]], theirs: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, str]]:
    for name, parameters in theirs.items():
        same = [old for old, held in ours.items() if held == parameters]
        if name in same or len(same) == 1:
            yield (name if name in same else same[0]), name


def _in_order(ours: list[str], theirs: list[str]) -> dict[str, str]:
    """What comes into use in one order, where there is as much of it on both sides."""
    return dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else {}


def _joining(side: Side, begin: int) -> list[str]:
    """The optimizers that come into use after a step, in the order of their numbers."""
    before = {name for step in range(begin + 1) for _, name in _told(side, step)}
    names = {optimizer_of(name) for name in _numbered(side)}
    return sorted(names - before - {""}, key=lambda name: (len(name), name))


def _schedulers(side: Side) -> list[str]:
    names = {scheduler_of(name) for name in _numbered(side)} - {""}
    return sorted(names, key=lambda name: (len(name), name))


def _stepping(side: Side, begin: int) -> list[str]:
    """The schedulers that step from some step on, in the order of their numbers."""
    sites = side.steps.sites
    names = {
        number: name
        for number, site in enumerate(sites.sites)
        if site.phase == Phase.SCHEDULER and (name := scheduler_of(site.component))
    }
    found: set[str] = set()
    for number in side.steps.numbers:
        if number >= begin:
            seen = np.unique(side.steps[number].site).tolist()
            found |= {names[site] for site in seen if site in names}
    return sorted(found, key=lambda name: (len(name), name))


def _free_names(taken: set[str]) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        for kind in ("optimizer", "scheduler"):
            if f"{kind}[{number}]" not in taken:
                yield f"{kind}[{number}]"
