"""Templates: the questions that families ask of every run, and the events that answer them."""

import enum
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from traceparity.tracefmt.records import Phase

Plain = str | int | float | bool | None
"""What context and outcomes are made of; lists stand as their text."""


_LONGEST = 60
"""Characters of a table that are told."""


class Learns(enum.Enum):
    """What is learned from the outcomes of a template."""

    CONSTANT = "constant"
    """One outcome, always, where the precondition holds."""
    MOST = "most"
    """The largest number seen."""
    RANGE = "range"
    """An envelope of the numbers seen, wide, and only from two runs or more."""


class Template(msgspec.Struct, frozen=True):
    """A question that a family asks of every run, about the same kind of event each time.

    Attributes:
        id: Names it in files: family, dot, question.
        phase: Where in a step its events are.
        noun: What events are about, in the plural.
        says: Outcome to what it means, in words; or one text with ``{}`` for the outcome.
        fields: Context of an event, from the most general field to the most specific one.
        each: Fields whose every combination is learned by itself; they stand in preconditions.
        scope: Fields that always stand in preconditions: what was never seen is not judged.
        learns: What is learned from the outcomes.
        proposed: Outcomes that an invariant may have; None for all.
        support: Events that an invariant needs.
        least: No number that is learned can be below it.
        runs: Reference runs that an invariant needs to be seen in.
        most_outcomes: A question with more answers than this has no answer.
        implied_by: Templates whose invariants, with this outcome and precondition, say it too.
        needs: Phases without which the recording cannot tell.
        is_table: Whether outcomes are tables, of which only the beginning is told.
        hint: What to look at where an invariant is broken.
        shows: Field of a finding.
    """

    id: str
    phase: Phase
    noun: str
    says: Mapping[Plain, str] | str
    fields: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    learns: Learns = Learns.CONSTANT
    proposed: tuple[Plain, ...] | None = None
    support: int = 2
    least: float = float("-inf")
    runs: int = 1
    most_outcomes: int = 4
    implied_by: Mapping[str, Plain] = msgspec.field(default_factory=dict)
    needs: tuple[Phase, ...] = ()
    is_table: bool = False
    hint: str = ""
    shows: str = ""

    @property
    def family(self) -> str:
        """Name of the family."""
        return self.id.partition(".")[0]

    def say(self, outcome: Any) -> str:
        """An outcome in words."""
        if isinstance(self.says, str):
            text = str(outcome)
            shortened = self.is_table and len(text) > _LONGEST
            return self.says.format(f"{text[:_LONGEST]}..." if shortened else outcome)
        return self.says.get(outcome, str(outcome))


class Departure(msgspec.Struct, frozen=True):
    """Where an outcome that was gathered over many steps is another one than expected.

    Attributes:
        step: The step in which it parts.
        expected: What was expected there.
        seen: What was seen there.
    """

    step: int
    expected: str
    seen: str


class Event(msgspec.Struct, frozen=True):
    """Something that happened in a step, as often as it did.

    Attributes:
        template: The question that it answers.
        context: Values of the template's fields.
        outcome: The answer.
        count: How often it happened in the step with this context and outcome.
        component: What it happened to, first.
        row: A row that shows it; -1 where none does.
        members: Gives everything that it happened to.
        seen: The outcome in detail; empty for the template's own words.
        departs: Of an outcome that was gathered over many steps: how it parts from an expected
            one, None where it does not. Left out, an outcome is as expected or is not.
    """

    template: Template
    context: tuple[Plain, ...]
    outcome: Plain
    count: int = 1
    component: str = ""
    row: int = -1
    members: Callable[[], list[str]] | None = None
    seen: str = ""
    departs: Callable[[Plain], Departure | None] | None = None

    @property
    def key(self) -> tuple[str, tuple[Plain, ...], Plain]:
        """Equal for events that say the same."""
        return self.template.id, self.context, self.outcome
