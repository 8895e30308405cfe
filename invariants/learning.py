"""Learning: from what was seen in good runs to what always held, with its preconditions."""

from collections.abc import Iterator, Sequence

from traceparity.invariants.evidence import Cell, Evidence
from traceparity.invariants.invariant import Invariant, id_of, sentence
from traceparity.invariants.preconditions import Example, Precondition, holds, learn
from traceparity.invariants.template import Learns, Plain, Template

_WIDER = 4.0
"""An envelope reaches so many times its own width beyond what was seen, on either side."""


def infer(evidence: Evidence) -> list[Invariant]:
    """The invariants that no reference breaks, in order of their questions.

    One that a further reference breaks, when it is learned from the others, stands on chance: it
    is dropped unless all of them together support it under the same fields.
    """
    found: list[Invariant] = []
    for name in sorted(evidence.templates):
        template = evidence.templates[name]
        cells = evidence.cells(name)
        learned = list(_learned(template, cells, evidence))
        if len(evidence.references) > 1:
            learned = [each for each in learned if _is_stable(each, template, cells, evidence)]
        found += [each for each in learned if _is_kept(each, cells, template)]
    return without_implied(found, evidence)


def _learned(template: Template, cells: Sequence[Cell], evidence: Evidence) -> Iterator[Invariant]:
    for part in _parts(template, cells):
        if template.learns is Learns.CONSTANT:
            yield from _constants(template, part, evidence)
        else:
            yield from _bounds(template, part, evidence)


def _parts(template: Template, cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells of equal values in the fields that are learned by themselves."""
    places = [template.fields.index(name) for name in template.each]
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        parts.setdefault(repr([cell.context[place] for place in places]), []).append(cell)
    return [parts[key] for key in sorted(parts)]


def _constants(
    template: Template, cells: Sequence[Cell], evidence: Evidence
) -> Iterator[Invariant]:
    outcomes = _distinct([cell.outcome for cell in cells])
    if len(outcomes) > template.most_outcomes:
        return
    examples = [Example(cell.context, cell.outcome, cell.count) for cell in cells]
    always = {template.fields.index(name) for name in (*template.each, *template.scope)}
    for outcome in outcomes:
        if template.proposed is not None and outcome not in template.proposed:
            continue
        for precondition in learn(examples, outcome, scope=always):
            inside = [cell for cell in cells if holds(precondition, cell.context)]
            positive = sum(cell.count for cell in inside)
            runs = {number for cell in inside for number in cell.counts}
            if positive < template.support or len(runs) < template.runs:
                continue
            others = (cell for cell in cells if not _same(cell.outcome, outcome))
            negative = sum(cell.count for cell in others)
            yield _invariant(template, outcome, precondition, positive, negative, inside, evidence)


def _invariant(
    template: Template,
    outcome: Plain,
    precondition: Precondition,
    positive: int,
    negative: int,
    inside: Sequence[Cell],
    evidence: Evidence,
) -> Invariant:
    named = _named(template, precondition)
    first = min(inside, key=lambda cell: (cell.witness.reference, cell.witness.step))
    return Invariant(
        template=template.id,
        outcome=outcome,
        precondition=named,
        text=sentence(template, outcome, named),
        positive=positive,
        negative=negative,
        witness=first.witness,
        references=tuple(evidence.references),
        id=id_of(template.id, outcome, named),
    )


def _bounds(template: Template, cells: Sequence[Cell], evidence: Evidence) -> Iterator[Invariant]:
    runs = {number for cell in cells for number in cell.counts}
    if template.learns is Learns.RANGE and len(runs) < 2:
        return
    low, high = min(cell.low for cell in cells), max(cell.high for cell in cells)
    bounds: tuple[float | None, float | None] = None, high
    if template.learns is Learns.RANGE:
        reach = _WIDER * max(high - low, abs(high), abs(low))
        bounds = max(low - reach, template.least), high + reach
    places = [template.fields.index(name) for name in (*template.each, *template.scope)]
    precondition = tuple(
        (place, frozenset(cell.context[place] for cell in cells)) for place in sorted(set(places))
    )
    named = _named(template, precondition)
    positive = sum(cell.count for cell in cells)
    if positive >= template.support:
        yield Invariant(
            template=template.id,
            outcome=None,
            low=bounds[0],
            high=bounds[1],
            precondition=named,
            text=sentence(template, None, named, bounds),
            positive=positive,
            witness=min(
                (cell.witness for cell in cells), key=lambda each: (each.reference, each.step)
            ),
            references=tuple(evidence.references),
            id=id_of(template.id, None, named),
        )


def _named(template: Template, precondition: Precondition) -> dict[str, tuple[Plain, ...]]:
    return {
        template.fields[place]: tuple(sorted(values, key=_in_order))
        for place, values in precondition
    }


def _in_order(value: Plain) -> tuple[str, float, str]:
    number = float(value) if isinstance(value, int | float) else 0.0
    return type(value).__name__, number, str(value)


def _distinct(outcomes: Sequence[Plain]) -> list[Plain]:
    found = {(type(outcome).__name__, outcome): outcome for outcome in outcomes}
    return [found[key] for key in sorted(found, key=repr)]


def _same(left: Plain, right: Plain) -> bool:
    return left == right and type(left) is type(right)


def _is_stable(
    invariant: Invariant, template: Template, cells: Sequence[Cell], evidence: Evidence
) -> bool:
    """Whether no reference breaks what the others say of it under fewer fields."""
    if template.learns is not Learns.CONSTANT:
        return True
    for number in range(len(evidence.references)):
        others = [cell for cell in cells if set(cell.counts) - {number}]
        alone = [cell for cell in cells if number in cell.counts]
        for part in _parts(template, others):
            for rule in _constants(template, part, evidence):
                if not _same(rule.outcome, invariant.outcome):
                    continue
                fewer = set(rule.precondition) < set(invariant.precondition)
                if fewer and _covers(rule, invariant) and _breaks(rule, template, alone):
                    return False
    return True


def _covers(rule: Invariant, invariant: Invariant) -> bool:
    return all(
        set(rule.precondition[name]) & set(invariant.precondition[name])
        for name in rule.precondition
    )


def _breaks(rule: Invariant, template: Template, cells: Sequence[Cell]) -> bool:
    precondition = placed(rule, template)
    return any(
        holds(precondition, cell.context) and not _same(cell.outcome, rule.outcome)
        for cell in cells
    )


def placed(invariant: Invariant, template: Template) -> Precondition:
    """The precondition of an invariant by the places of the template's fields."""
    return tuple(
        (template.fields.index(name), frozenset(values))
        for name, values in invariant.precondition.items()
    )


def _is_kept(invariant: Invariant, cells: Sequence[Cell], template: Template) -> bool:
    """The mandatory self-check: no event of a reference breaks it."""
    precondition = placed(invariant, template)
    for cell in cells:
        if not holds(precondition, cell.context):
            continue
        if template.learns is Learns.CONSTANT:
            if not _same(cell.outcome, invariant.outcome):
                return False
        elif (invariant.low is not None and cell.low < invariant.low) or (
            invariant.high is not None and cell.high > invariant.high
        ):
            return False
    return True


def without_implied(found: Sequence[Invariant], evidence: Evidence) -> list[Invariant]:
    """Leave out what another invariant says too."""
    said = {(each.template, repr(each.outcome), repr(each.precondition)) for each in found}
    kept = []
    for each in found:
        template = evidence.templates[each.template]
        implied = any(
            (name, repr(outcome), repr(each.precondition)) in said
            for name, outcome in template.implied_by.items()
        )
        if not implied:
            kept.append(each)
    return kept
