"""Evidence for differences of the forward pass: inputs, flags, overwritten tensors, intervals."""

from collections.abc import Iterator

import numpy as np

from traceparity.differ.candidates import Candidate
from traceparity.differ.likeness import Likeness
from traceparity.differ.moment import likeness
from traceparity.differ.names import operator_of
from traceparity.differ.result import Evidence
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Phase


def inputs(pair: StepPair, candidate: Candidate, component: str, field: str) -> Iterator[Evidence]:
    """Whether the inputs of the call were equal; those of the operator, where it is one's field."""
    operator = operator_of(field)
    prefix = f"{operator}.input[" if operator else "input["
    seen = [
        _inputs_of(view, pair, candidate, component, prefix)
        for view in (pair.reference, pair.target)
    ]
    found = Likeness()
    for name in seen[0] | seen[1]:
        rows = seen[0].get(name), seen[1].get(name)
        left, right = (
            None if row is None else view.observation(row)
            for view, row in zip((pair.reference, pair.target), rows, strict=True)
        )
        site = pair.sites.number(candidate.block.phase, component, name)
        assert site is not None
        found.take(pair, site, name, left, right)
    yield from found.evidence("inputs", "inputs")


def _inputs_of(
    view: StepView, pair: StepPair, candidate: Candidate, component: str, prefix: str
) -> dict[str, int]:
    """The rows of a call's inputs, by field."""
    mask = (view.block == candidate.block.number) & (view.columns.call == candidate.call)
    inputs = {}
    for row in np.flatnonzero(mask).tolist():
        name, field = pair.sites.things[int(view.thing[row])]
        if name == component and field.startswith(prefix):
            inputs[field] = row
    return inputs


def training_flags(pair: StepPair, candidate: Candidate, component: str) -> Iterator[Evidence]:
    """Whether the module was in train mode on one side only."""
    thing = pair.sites.thing(component, "training")
    if thing is not None and likeness(pair, candidate, [thing]).different:
        yield Evidence("flags", False, f"the training flag of {component or 'the model'} differs")


def overwritten(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    """Inputs that a call overwrote in one run only, up to the divergence."""
    seen = []
    for view, row in (
        (pair.reference, candidate.reference_row),
        (pair.target, candidate.target_row),
    ):
        mask = view.block == candidate.block.number
        rows = [found for found in np.flatnonzero(mask).tolist() if row is None or found <= row]
        things = (pair.sites.things[int(view.thing[found])] for found in rows)
        seen.append([name for name in things if name[1].startswith("input_after")])
    for (component, field), side in [
        *((name, "reference") for name in seen[0] if name not in seen[1]),
        *((name, "target") for name in seen[1] if name not in seen[0]),
    ]:
        position = field.removeprefix("input_after")
        detail = f"{component or 'the model'} overwrote its input{position} in the {side} only"
        yield Evidence("overwritten", False, detail)


def interval(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    """Between which two sites the runs part: what lies there may be code outside of modules."""
    place = candidate.reference_row
    last = candidate.order[1] if place is None else place - 1
    for row in range(last, -1, -1):
        if _is_event(pair.reference, row, candidate) and _answered(pair, row):
            before = pair.sites.sites[int(pair.reference.site[row])]
            after = pair.sites.sites[candidate.site]
            yield Evidence("interval", None, f"the runs part between {before} (equal) and {after}")
            return


def _is_event(view: StepView, row: int, candidate: Candidate) -> bool:
    return bool(
        view.judged[row]
        and not view.stateful[row]
        and view.phase[row] >= Phase.DATA
        and view.block[row] <= candidate.block.number
    )


def _answered(pair: StepPair, row: int) -> bool:
    """Whether the target saw the same site in the same block and call."""
    reference, target = pair.reference, pair.target
    same = (target.site == reference.site[row]) & (target.block == reference.block[row])
    return bool((same & (target.columns.call == reference.columns.call[row])).any())
