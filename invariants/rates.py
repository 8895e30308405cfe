"""Rates: what a scheduler makes of the learning rate, by how often it has stepped."""

import json
import math
from collections.abc import Iterator
from functools import partial

import msgspec

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.template import Departure, Plain
from traceparity.tracefmt.records import Phase

_ALL_BELOW = 6
"""Positions of so many bits are all kept; of longer ones the first six bits tell which."""
_RELATIVE, _ABSOLUTE = 1e-5, 1e-7
"""What the same formula may differ by from one machine to another; parts of the first rate."""


class Course(msgspec.Struct):
    """The learning rate of a group under one scheduler.

    Attributes:
        scheduler: Name of the scheduler.
        group: Name of the group.
        last: The largest position: how often the scheduler has stepped in the run.
        steady: Whether a position always had the same rate.
        factors: Position to the rate as part of the first one, and the step in which it was left.
    """

    scheduler: str
    group: str
    last: int = 0
    steady: bool = True
    factors: dict[int, tuple[float, int]] = msgspec.field(default_factory=dict)

    @property
    def text(self) -> str:
        """The factors, for people and files; the same course is the same text."""
        said = (f"{position}: {self.factors[position][0]:.7g}" for position in sorted(self.factors))
        return ", ".join(said)

    def departs(self, expected: Plain) -> Departure | None:
        """Where it first differs from the text of another course; None where it does not."""
        wanted = dict(_parsed(str(expected)))
        for position in sorted(self.factors.keys() & wanted.keys()):
            factor, step = self.factors[position]
            known = wanted[position]
            if not math.isclose(factor, known, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE):
                after = f"of the first rate after {position} steps of the scheduler"
                return Departure(step, f"{known:g} {after}", f"{factor:g} {after}")
        return None


class Courses:
    """The learning rates of a process, whose steps come in order."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Course] = {}
        self._by_metric: set[str] = set()
        self._whole = True

    def step(self, facts: StepFacts) -> None:
        """Take in a step."""
        self._whole &= facts.view.all_steps and not facts.gap
        if not facts.rates_after:
            return
        self._by_metric |= {facts.component(row) for row in facts.rows(Role.METRIC).tolist()}
        for scheduler, position, rates in _stepped(facts):
            for group, rate in rates.items():
                self._take(facts, scheduler, group, position, rate)

    def _take(
        self, facts: StepFacts, scheduler: str, group: str, position: int, rate: float
    ) -> None:
        first = facts.state.hyperparameters.get(group, {}).get("initial_lr")
        if not isinstance(first, int | float) or not first or not math.isfinite(rate / first):
            return
        course = self._known.get((scheduler, group))
        if course is None:
            course = self._known[scheduler, group] = Course(scheduler, group)
        course.last = max(course.last, position)
        if _is_kept(position):
            factor = rate / first
            known, _ = course.factors.setdefault(position, (factor, facts.step))
            course.steady &= known == factor

    def end(self) -> Iterator[Course]:
        """The courses that depend on nothing but the position, where all steps were seen."""
        if self._whole:
            for course in self._known.values():
                if course.steady and course.factors and course.scheduler not in self._by_metric:
                    yield course


def _stepped(facts: StepFacts) -> Iterator[tuple[str, int, dict[str, float]]]:
    """``(scheduler, position, rates by group)`` of each step of a scheduler, in order."""
    rows = [*facts.rows(Role.HYPERPARAMETER).tolist(), *facts.rows(Role.COUNTER).tolist()]
    phases = facts.names.phase[facts.columns.site[rows]].tolist()
    rates: dict[str, float] = {}
    # The rates are told first, then the counters of the scheduler that set them.
    for row in sorted(row for row, phase in zip(rows, phases, strict=True) if phase == _SCHEDULER):
        component = facts.component(row)
        name, _, counter = component.rpartition(".")
        if facts.field(row) == "lr":
            rates[component] = facts.number(row)
        elif counter == "last_epoch":
            position = facts.number(row)
            if position >= 0:
                yield name, int(position), rates
            rates = {}


_SCHEDULER = int(Phase.SCHEDULER)


def _is_kept(position: int) -> bool:
    dropped = max(0, position.bit_length() - _ALL_BELOW)
    return position & ((1 << dropped) - 1) == 0


def _parsed(text: str) -> Iterator[tuple[int, float]]:
    for part in text.split(","):
        position, _, factor = part.partition(":")
        try:
            yield int(position), float(factor)
        except ValueError:
            # A line that was edited by hand says less, and nothing wrong.
            continue


def arguments(facts: StepFacts) -> str:
    """What all schedulers of the run were made with, as far as it is plain."""
    settings = facts.state.settings
    named = sorted(name for name in facts.state.classes if name.startswith("scheduler"))
    plain = partial(json.dumps, sort_keys=True)
    return "; ".join(f"{facts.state.classes[name]} {plain(settings.get(name))}" for name in named)
