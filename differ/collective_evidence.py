"""Collectives before a divergence: what this rank gave to the others, and what it got from them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceparity.differ.candidates import Candidate
from traceparity.differ.likeness import Likeness
from traceparity.differ.result import Evidence
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Kind, Phase

COLLECTIVES = frozenset({
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor",
    "all_gather_single", "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor",
    "reduce_scatter_single", "all_to_all", "all_to_all_single", "send", "recv", "permute_tensor",
    "all_gather_tensor", "all_reduce_coalesced", "all_gather_single_coalesced",
    "all_gather_into_tensor_coalesced", "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
})  # fmt: skip
_IN_STEP = frozenset({Phase.FORWARD, Phase.BACKWARD, Phase.GRADIENT, Phase.OPTIMIZER})


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A value given to a collective or got from it."""

    name: str
    phase: Phase
    given: bool
    site: int
    row: int

    def __str__(self) -> str:
        return f"{self.name} in {self.phase.label}"


def collectives(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    """How the collectives that the program issued in the step until then compare."""
    ours, theirs = (_exchanges(pair, view, candidate) for view in (pair.reference, pair.target))
    if not ours and not theirs:
        return
    if [str(each) for each in ours] != [str(each) for each in theirs]:
        detail = (
            f"the program issues other collectives: {_listed(ours)} in the reference, "
            f"{_listed(theirs)} in the target"
        )
        yield Evidence("collectives", False, detail)
        return
    found = Likeness()
    for left, right in zip(ours, theirs, strict=True):
        values = pair.reference.observation(left.row), pair.target.observation(right.row)
        found.take(pair, left.site, str(left), *values)
        if found.apart:
            yield Evidence("collectives", False, _detail(left))
            return
    yield from found.evidence("collectives", "values of collectives")


def _detail(first: _Exchange) -> str:
    if first.given:
        return f"{first} was given another value"
    return f"{first} was given the same value and gave another one back: look at the other ranks"


def _exchanges(pair: StepPair, view: StepView, candidate: Candidate) -> list[_Exchange]:
    wanted = np.array(
        [site.component in COLLECTIVES and site.phase in _IN_STEP for site in pair.sites.sites],
        np.bool_,
    )
    chosen = wanted[view.site] & (view.columns.kind == Kind.TENSOR)
    found = []
    for row in np.flatnonzero(chosen & (view.block <= candidate.block.number)).tolist():
        site = pair.sites.sites[view.site[row]]
        given = site.field.startswith("input")
        found.append(_Exchange(site.component, site.phase, given, int(view.site[row]), row))
    return found


def _listed(exchanges: list[_Exchange]) -> str:
    names = list(dict.fromkeys(map(str, exchanges)))
    return ", ".join(names) or "none"
