"""Preconditions: the context in which an outcome is certain, by split-by-coverage on bit sets.

The examples of a question are few: equal ones are counted together, so that a set of them is an
integer with a bit for each. A precondition is a conjunction of clauses "this field is one of these
values". Where one conjunction cannot tell the examples with the outcome from those without, they
are split by the field that lets most of them be told, and each part is tried by itself.
"""

from collections.abc import Iterable, Sequence

import msgspec

from traceparity.invariants.template import Plain

_DEEPEST = 8
MOST_VALUES = 24
"""A clause with more values than this says nothing that a person would read."""

Clause = tuple[int, frozenset[Plain]]
"""A field, by its place, and the values that it may have."""
Precondition = tuple[Clause, ...]


class Example(msgspec.Struct, frozen=True):
    """Events of one context and outcome, counted together."""

    context: tuple[Plain, ...]
    outcome: Plain
    count: int


def holds(precondition: Precondition, context: Sequence[Plain]) -> bool:
    """Whether a context meets a precondition; 1 and True are different values."""
    return all(_among(context[place], values) for place, values in precondition)


def _among(value: Plain, values: frozenset[Plain]) -> bool:
    return value in values and any(value == each and type(value) is type(each) for each in values)


def learn(
    examples: Sequence[Example], outcome: Plain, *, scope: Iterable[int] = ()
) -> list[Precondition]:
    """The preconditions under which the outcome was always seen, most general first.

    Args:
        examples: All that was seen.
        outcome: The outcome.
        scope: Fields that stand in every precondition.
    """
    search = _Search(examples, outcome, frozenset(scope))
    return search.found()


class _Search:
    def __init__(self, examples: Sequence[Example], outcome: Plain, scope: frozenset[int]) -> None:
        self._examples = examples
        self._scope = scope
        self._fields = range(len(examples[0].context)) if examples else range(0)
        self._bits: list[dict[tuple[type, Plain], int]] = [{} for _ in self._fields]
        self._positive = self._negative = 0
        for number, example in enumerate(examples):
            bit = 1 << number
            if example.outcome == outcome and type(example.outcome) is type(outcome):
                self._positive |= bit
            else:
                self._negative |= bit
            for place, value in enumerate(example.context):
                key = (type(value), value)
                self._bits[place][key] = self._bits[place].get(key, 0) | bit

    def found(self) -> list[Precondition]:
        if not self._positive:
            return []
        return _merged(self._split(self._positive, self._negative, {}, _DEEPEST))

    def _split(
        self, positive: int, negative: int, fixed: dict[int, frozenset[Plain]], depth: int
    ) -> list[Precondition]:
        whole = self._conjunction(positive, negative, fixed)
        if whole is not None:
            return [whole]
        if not depth:
            return []
        best: tuple[int, int, list[tuple[Plain, int]]] | None = None
        for place in self._fields:
            if place in fixed:
                continue
            parts = self._parts(place, positive)
            if len(parts) < 2 or len(parts) > MOST_VALUES:
                continue
            told = sum(
                self._count(part)
                for value, part in parts
                if self._conjunction(
                    part,
                    negative & self._bits[place][type(value), value],
                    {**fixed, place: frozenset([value])},
                )
                is not None
            )
            if told and (best is None or told > best[0]):
                best = told, place, parts
        if best is None:
            return []
        _, place, parts = best
        found = []
        for value, part in parts:
            against = negative & self._bits[place][type(value), value]
            clause = {**fixed, place: frozenset([value])}
            found += self._split(part, against, clause, depth - 1)
        return found

    def _parts(self, place: int, positive: int) -> list[tuple[Plain, int]]:
        parts = [
            (key[1], bits & positive) for key, bits in self._bits[place].items() if bits & positive
        ]
        return sorted(parts, key=lambda part: repr(part[0]))

    def _count(self, bits: int) -> int:
        return sum(
            example.count for number, example in enumerate(self._examples) if bits >> number & 1
        )

    def _conjunction(
        self, positive: int, negative: int, fixed: dict[int, frozenset[Plain]]
    ) -> Precondition | None:
        """The weakest conjunction that is true of these positives and of none of the negatives."""
        clauses: dict[int, tuple[frozenset[Plain], int]] = {}
        for place in self._fields:
            parts = self._parts(place, positive)
            covered = 0
            for bits in self._bits[place].values():
                covered |= bits if bits & positive else 0
            values = frozenset(value for value, _ in parts)
            useful = negative & ~covered and len(parts) <= MOST_VALUES
            if useful or place in self._scope:
                clauses[place] = values, covered
        if self._passing(clauses, negative):
            return None
        # Specific fields go first: a rule about a class is worth more than one about a path.
        for place in sorted(clauses, reverse=True):
            without = {key: clause for key, clause in clauses.items() if key != place}
            if place not in self._scope and not self._passing(without, negative):
                clauses = without
        kept = {**fixed, **{place: values for place, (values, _) in clauses.items()}}
        return tuple(sorted((place, values) for place, values in kept.items()))

    def _passing(self, clauses: dict[int, tuple[frozenset[Plain], int]], negative: int) -> int:
        for _, covered in clauses.values():
            negative &= covered
        return negative


def _merged(found: list[Precondition]) -> list[Precondition]:
    """Preconditions that differ in the values of one field alone are put together."""
    merged = list(dict.fromkeys(found))
    again = True
    while again:
        again = False
        for left in range(len(merged)):
            for right in range(left + 1, len(merged)):
                joined = _joined(merged[left], merged[right])
                if joined is not None:
                    merged[left] = joined
                    del merged[right]
                    again = True
                    break
            if again:
                break
    return sorted(merged, key=lambda each: (len(each), repr(_sortable(each))))


def _joined(left: Precondition, right: Precondition) -> Precondition | None:
    if [place for place, _ in left] != [place for place, _ in right]:
        return None
    apart = [at for at in range(len(left)) if left[at][1] != right[at][1]]
    if len(apart) != 1:
        return None
    at = apart[0]
    place, values = left[at][0], left[at][1] | right[at][1]
    return (*left[:at], (place, values), *left[at + 1 :])


def _sortable(precondition: Precondition) -> list[tuple[int, list[str]]]:
    return [(place, sorted(map(repr, values))) for place, values in precondition]
