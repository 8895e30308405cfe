"""S, the shape and dtype law: what modules give, with sizes by what they follow."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from traceparity.invariants.roles import Role
from traceparity.invariants.state import Ids
from traceparity.invariants.subjects import pattern_of
from traceparity.invariants.template import Event, Template
from traceparity.tracefmt.records import Kind, Phase

if TYPE_CHECKING:
    from traceparity.invariants.facts import StepFacts

_MOST_KNOWN = 64
_FIELDS = ("field", "class", "path")

DTYPE = Template(
    id="shape.dtype",
    phase=Phase.FORWARD,
    noun="outputs of modules",
    says="are of dtype {}",
    fields=_FIELDS,
    scope=("class",),
    needs=(Phase.FORWARD,),
    hint="autocast, at casts, and at the dtype of the parameters",
    shows="dtype",
)
DIMENSIONS = Template(
    id="shape.dimensions",
    phase=Phase.FORWARD,
    noun="outputs of modules",
    says="have {} dimensions",
    fields=_FIELDS,
    scope=("class",),
    most_outcomes=6,
    needs=(Phase.FORWARD,),
    hint="a dimension was added or lost: look at view, squeeze, batching and collation",
    shows="shape",
)
FIRST = Template(
    id="shape.first",
    phase=Phase.FORWARD,
    noun="outputs of modules",
    says={
        True: "have one entry for each sample of the batch",
        False: "have another first size than the batch has samples",
    },
    fields=_FIELDS,
    scope=("class",),
    proposed=(True,),
    needs=(Phase.FORWARD,),
    hint="samples were merged, dropped or repeated on the way",
    shows="shape",
)


class Observer:
    """What comes out of modules."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int | None], list[tuple[Event, int]]] = {}

    def step(self, facts: "StepFacts") -> Iterator[Event]:
        """The events of a step."""
        columns = facts.columns
        rows = facts.trained(facts.rows(Role.OUTPUT))
        rows = rows[columns.kind[rows] == Kind.TENSOR]
        if not len(rows):
            return
        size = _batch_size(facts)
        codes = columns.site[rows].astype(np.int64) << 40
        codes |= columns.dtype[rows].astype(np.int64) << 28
        codes |= columns.shape[rows].astype(np.int64) & 0xFFFFFFF
        # Most steps have the same sites, dtypes and shapes as many others.
        key = codes.tobytes(), size
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            _, first, counts = np.unique(codes, return_index=True, return_counts=True)
            grouped = _grouped(facts, rows[first], counts.tolist(), size)
            known = self._known[key] = [(event, int(first[at])) for event, at in grouped]
        for event, at in known:
            yield replace(event, row=int(rows[at]))


def _grouped(
    facts: "StepFacts", rows: Ids, counts: list[int], size: int | None
) -> list[tuple[Event, int]]:
    """One event for all modules of which the same is true, and the place of its first row."""
    found: dict[tuple[object, ...], tuple[Event, int, int, list[str]]] = {}
    for at, (row, count) in enumerate(zip(rows.tolist(), counts, strict=True)):
        for event in _events(facts, row, size):
            key = event.key, type(event.outcome)
            _, place, total, members = found.get(key, (event, at, 0, []))
            members.append(event.component)
            found[key] = found[key][0] if key in found else event, place, total + count, members
    return [
        (replace(event, count=total, members=members.copy), place)
        for event, place, total, members in found.values()
    ]


def _events(facts: "StepFacts", row: int, size: int | None) -> Iterator[Event]:
    module, shape = facts.component(row), facts.shape(row)
    context = facts.field(row), facts.state.classes.get(module, ""), pattern_of(module)
    told = "x".join(map(str, shape)) or "a single number"
    yield Event(DTYPE, context, facts.dtype(row), component=module)
    yield Event(DIMENSIONS, context, len(shape), component=module, seen=f"shape {told}")
    if size is not None and shape:
        seen = f"shape {told}, and {size} samples in the batch"
        yield Event(FIRST, context, shape[0] == size, component=module, seen=seen)


def _batch_size(facts: "StepFacts") -> int | None:
    """Samples in the batches of the step, where all have the same number."""
    sizes = {batch.size for batch in facts.batches if batch.trained}
    return sizes.pop() if len(sizes) == 1 else None


TEMPLATES = (DTYPE, DIMENSIONS, FIRST)
