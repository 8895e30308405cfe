"""Invariants: what was learned, one object each, as plain data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import xxhash

from traceparity.invariants.finding import FAMILIES, Rule
from traceparity.invariants.template import Learns, Plain, Template

_LETTERS = {name: letter for letter, name in FAMILIES.items()}


@dataclass(frozen=True, slots=True)
class Witness:
    """The first event that supports an invariant.

    Attributes:
        reference: Number of the reference run, from 0.
        step: Its step.
        component: What it is about.
        location: Source line; empty where unknown.
    """

    reference: int
    step: int
    component: str
    location: str


@dataclass(frozen=True, slots=True)
class Invariant:
    """Where the precondition holds, events of a template have one outcome.

    Attributes:
        template: Id of the template.
        outcome: The outcome; None for bounds.
        low: Smallest number allowed; None without one.
        high: Largest number allowed; None without one.
        precondition: Field to the values that it may have, sorted; all fields must fit.
        text: The invariant in one sentence.
        positive: Events that support it.
        negative: Events with another outcome, which its precondition leaves out.
        witness: The first event that supports it.
        references: Content digests of the runs that it was learned from.
        accepted: Why a deviation is no violation; empty where it is one.
        id: Names it in reports and options.
    """

    template: str
    outcome: Plain
    low: float | None = None
    high: float | None = None
    precondition: Mapping[str, tuple[Plain, ...]] = field(default_factory=dict)
    text: str = ""
    positive: int = 0
    negative: int = 0
    witness: Witness = field(default_factory=lambda: Witness(0, 0, "", ""))
    references: tuple[str, ...] = ()
    accepted: str = ""
    id: str = ""

    @property
    def relation(self) -> str:
        """Name of the family."""
        return self.template.partition(".")[0]

    def rule(self, hint: str) -> Rule:
        """It as findings show it."""
        return Rule(self.relation, self.id, self.text, hint)


def id_of(template: str, outcome: Plain, precondition: Mapping[str, tuple[Plain, ...]]) -> str:
    """An id that says the family, and is the same for the same invariant learned again."""
    said = json.dumps([template, outcome, {key: list(precondition[key]) for key in precondition}])
    letter = _LETTERS[template.partition(".")[0]]
    return f"{letter}-{xxhash.xxh3_64_hexdigest(said.encode())[:8]}"


def sentence(
    template: Template,
    outcome: Any,
    precondition: Mapping[str, tuple[Plain, ...]],
    bounds: tuple[float | None, float | None] = (None, None),
) -> str:
    """An invariant in words."""
    clauses = " and ".join(
        f"{name.replace('_', ' ')} {_values(values)}" for name, values in precondition.items()
    )
    where = f" with {clauses}" if clauses else ""
    if template.learns is Learns.MOST:
        return f"{template.noun}{where}: at most {bounds[1]:g}"
    if template.learns is Learns.RANGE:
        return f"{template.noun}{where}: between {bounds[0]:g} and {bounds[1]:g}"
    return f"{template.noun}{where}: {template.say(outcome)}"


def _values(values: tuple[Plain, ...]) -> str:
    said = [_said(value) for value in values]
    if len(said) == 1:
        return said[0]
    return f"{', '.join(said[:-1])} or {said[-1]}"


def _said(value: Plain) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return '""' if value == "" else str(value)
