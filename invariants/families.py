"""The families of invariants: what observes a run for each, and the other names that they go by."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from traceparity.invariants.errors import InvariantError
from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import FAMILIES
from traceparity.invariants.relations import (
    bounds,
    collective,
    data,
    equality,
    function,
    gradient,
    hyperparameter,
    mode,
    phase,
    randomness,
    shape,
    update,
    write,
)
from traceparity.invariants.template import Event, Template

ALIASES = {
    "APIContainRelation": (
        "update", "gradient", "phase", "write", "mode", "randomness", "function",
    ),
    "ConsistencyRelation": ("equality",),
    "ConsistentOutputRelation": ("shape", "hyperparameter", "function"),
    "ConsistentInputOutputRelation": ("shape",),
    "ThresholdRelation": ("bounds",),
    "FunctionLeadRelation": ("phase", "hyperparameter", "function"),
    "FunctionCoverRelation": ("phase", "gradient", "function"),
    "DistinctArgumentRelation": ("data", "randomness", "collective", "function"),
}  # fmt: skip
"""Names of relations elsewhere, and the families that find what they find."""

_MODULES = {
    "update": update,
    "write": write,
    "gradient": gradient,
    "phase": phase,
    "mode": mode,
    "shape": shape,
    "hyperparameter": hyperparameter,
    "data": data,
    "equality": equality,
    "bounds": bounds,
    "randomness": randomness,
    "collective": collective,
    "function": function,
}


class Observer(Protocol):
    """Turns the steps of one process into events."""

    def step(self, facts: StepFacts) -> Iterable[Event]:
        """The events of a step."""
        ...


class RankObserver(Protocol):
    """Turns the steps of several processes into events."""

    def step(self, ranks: Sequence[StepFacts]) -> Iterable[Event]:
        """The events of a step of all processes."""
        ...


def templates(families: Iterable[str]) -> dict[str, Template]:
    """All questions of some families, by id."""
    return {each.id: each for name in families for each in _MODULES[name].TEMPLATES}


def families_of(enabled: Sequence[str], disabled: Sequence[str]) -> tuple[str, ...]:
    """The families to use, from names, letters or aliases.

    Raises:
        InvariantError: There is no such name, or nothing is left.
    """
    wanted = set(_named(enabled)) if enabled else set(_MODULES)
    wanted -= set(_named(disabled))
    if not wanted:
        raise InvariantError("no relation is left to use")
    return tuple(name for name in _MODULES if name in wanted)


def _named(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if name in _MODULES:
            yield name
        elif FAMILIES.get(name) in _MODULES:
            yield FAMILIES[name]
        elif name in ALIASES:
            yield from ALIASES[name]
        else:
            known = ", ".join((*_MODULES, *ALIASES))
            raise InvariantError(f"no relation {name!r}; there are {known}")


class Observers:
    """All observers of a run: one set for each process, and those that compare processes."""

    def __init__(self, families: Sequence[str]) -> None:
        self._families = families
        self._ranks: dict[int, list[Observer]] = {}
        self._group: list[RankObserver] = []
        self._last: dict[int, StepFacts] = {}
        if "equality" in families:
            self._group.append(equality.RankObserver())
        if "data" in families:
            self._group.append(data.RankObserver())
        if "collective" in families:
            self._group.append(collective.RankObserver())

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step of one process."""
        observers = self._ranks.get(facts.rank)
        if observers is None:
            observers = [_MODULES[name].Observer() for name in self._families]
            self._ranks[facts.rank] = observers
        self._last[facts.rank] = facts
        for observer in observers:
            yield from observer.step(facts)

    def ranks(self, group: Sequence[StepFacts]) -> Iterator[Event]:
        """The events that a step of several processes shows."""
        for observer in self._group:
            yield from observer.step(group)

    def end(self) -> Iterator[tuple[StepFacts, Event]]:
        """What only the end of the run shows, each with the last step of its process."""
        for rank, observers in self._ranks.items():
            for observer in observers:
                if isinstance(observer, hyperparameter.Observer):
                    for event in observer.end(self._last[rank]):
                        yield self._last[rank], event
