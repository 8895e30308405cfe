"""The law of tied weights: what began as one parameter, or as equal ones by design, stays so."""

from collections.abc import Iterator

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.tracefmt.records import Phase

TIED_EQUAL = Rule(
    "equality",
    "tied-equal",
    "tied weights stay tied",
    "was a weight replaced, loaded or moved after it was tied? Tie it again, and see that the "
    "optimizer holds it",
)


class TiedEqual:
    """A tied name has a value of its own, or an embedding and a head that began equal part."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._equal: list[tuple[int, int, Finding]] = []

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        if facts.first:
            self._equal = list(_equal_pairs(facts))
        yield from self._untied(facts)
        digest = facts.state.digest
        for pair in list(self._equal):
            first, second, finding = pair
            if (digest[first] != digest[second]).any():
                self._equal.remove(pair)
                yield finding

    def _untied(self, facts: StepFacts) -> Iterator[Finding]:
        if not facts.state.shared_with:
            return
        values = facts.values
        for at in np.flatnonzero(values.first & (values.phase == Phase.STATE)).tolist():
            name = facts.names.tensors[values.tensor[at]]
            first = facts.state.shared_with.get(name)
            if first is not None and name not in self._told:
                self._told.add(name)
                yield facts.finding(
                    TIED_EQUAL, Phase.STATE, name, "value", f"one tensor with {first}",
                    "a tensor of its own", row=int(values.row[at]),
                )  # fmt: skip

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())


def _equal_pairs(facts: StepFacts) -> Iterator[tuple[int, int, Finding]]:
    """Embeddings and linear heads of other modules that begin with the same bits."""
    values, classes = facts.values, facts.state.classes
    seen: dict[bytes, int] = {}
    for at in np.flatnonzero(values.first & (values.phase == Phase.STATE)).tolist():
        tensor, digest = int(values.tensor[at]), values.digest[at].tobytes()
        name = facts.names.tensors[tensor]
        kind = classes.get(name.rpartition(".")[0], "")
        if kind not in ("Embedding", "Linear") or not name.endswith("weight"):
            continue
        other = seen.setdefault(digest, tensor)
        first = facts.names.tensors[other]
        if {kind, classes.get(first.rpartition(".")[0])} == {"Embedding", "Linear"}:
            yield other, tensor, facts.finding(
                TIED_EQUAL, Phase.STATE, name, "value", f"one tensor with {first}",
                f"a tensor of its own, which began with the bits of {first} and then parted",
                row=int(values.row[at]),
            )  # fmt: skip
