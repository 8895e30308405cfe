"""Evidence: the events of the reference runs, equal ones counted together."""

from collections.abc import Iterable

import msgspec

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.invariant import Witness
from traceparity.invariants.template import Event, Learns, Plain, Template


class Cell(msgspec.Struct):
    """Equal events.

    Attributes:
        context: Values of the template's fields.
        outcome: The answer; None where numbers are learned.
        counts: How often they happened in each reference.
        witness: The first of them.
        low: Smallest number, where numbers are learned.
        high: Largest number.
    """

    context: tuple[Plain, ...]
    outcome: Plain
    counts: dict[int, int]
    witness: Witness
    low: float = 0.0
    high: float = 0.0

    @property
    def count(self) -> int:
        """How often they happened in all references."""
        return sum(self.counts.values())


class Evidence:
    """All that was seen in the reference runs; its size does not grow with their length.

    Attributes:
        templates: The questions that were answered, by id.
        references: Content digests of the runs, in order.
        most_cells: Kinds of events of one question, beyond which it counts as unanswerable.
        unseen: Functions that were to be watched and could not be, each with the reason.
        watched: Functions that were watched.
        updates: Updates that were seen.
    """

    def __init__(self, most_cells: int | None = 5000) -> None:
        self.templates: dict[str, Template] = {}
        self.references: list[str] = []
        self.most_cells = most_cells
        self.unseen: dict[str, str] = {}
        self.watched: set[str] = set()
        self.updates = 0
        self._cells: dict[str, dict[tuple[tuple[Plain, ...], type, Plain], Cell]] = {}

    def begin(self, reference: str) -> None:
        """What follows was seen in another reference."""
        self.references.append(reference)

    def take(self, facts: StepFacts, events: Iterable[Event]) -> None:
        """Count the events of a step."""
        number = len(self.references) - 1
        self.unseen.update(facts.view.unseen)
        self.watched.update(facts.view.watched)
        self.updates += bool(facts.updated)
        for event in events:
            template = event.template
            cells = self._cells.get(template.id)
            if cells is None:
                cells = self._cells[template.id] = {}
                self.templates[template.id] = template
            counted = template.learns is Learns.CONSTANT
            outcome = event.outcome if counted else None
            # 1 and True are equal in Python and are not the same answer.
            key = event.context, type(outcome), outcome
            cell = cells.get(key)
            if cell is None:
                if self.most_cells is not None and len(cells) >= self.most_cells:
                    continue
                cell = cells[key] = Cell(
                    event.context, outcome, {}, self._witness(number, facts, event)
                )
                if not counted:
                    cell.low = cell.high = _number(event)
            cell.counts[number] = cell.counts.get(number, 0) + event.count
            if not counted:
                value = _number(event)
                cell.low, cell.high = min(cell.low, value), max(cell.high, value)

    def _witness(self, number: int, facts: StepFacts, event: Event) -> Witness:
        location = "" if event.row < 0 else facts.location(event.row)
        return Witness(number, facts.step, event.component, location)

    def cells(self, template: str) -> list[Cell]:
        """What was seen of a question; nothing where there was more of it than can be counted."""
        cells = self._cells.get(template, {})
        if self.most_cells is not None and len(cells) >= self.most_cells:
            return []
        return list(cells.values())

    @property
    def overfull(self) -> tuple[str, ...]:
        """Questions with more kinds of events than are counted."""
        most = self.most_cells
        if most is None:
            return ()
        return tuple(name for name, cells in self._cells.items() if len(cells) >= most)


def _number(event: Event) -> float:
    return float(event.outcome) if isinstance(event.outcome, int | float) else 0.0
