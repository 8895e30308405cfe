"""What chose the samples of the passes that begin in a step."""

from collections.abc import Iterator
from typing import Any

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role


def samplers(facts: StepFacts) -> Iterator[tuple[str, dict[str, Any]]]:
    """``(loader, facts of its sampler)``; none in traces of recorders that did not tell."""
    for row in facts.rows(Role.SAMPLER).tolist():
        said = facts.scalar(row)
        if isinstance(said, dict):
            yield facts.component(row), said
