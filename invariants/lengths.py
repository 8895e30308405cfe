"""Lengths: what modules were told to keep below, by arguments such as ``max_new_tokens``."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from traceparity.invariants.roles import Role
from traceparity.tracefmt.records import Kind

if TYPE_CHECKING:
    from traceparity.invariants.facts import StepFacts

_LIMIT = re.compile(r"input\[(\w*max\w*)\]")


class Length(msgspec.Struct, frozen=True):
    """A call with an argument that limits the length of its output.

    Attributes:
        row: Row of the argument.
        module: Path of the module.
        argument: Name of the argument.
        limit: Its value.
        length: Second size of the output; only what was added, where the argument says "new".
    """

    row: int
    module: str
    argument: str
    limit: int
    length: int


class Lengths:
    """Finds such calls in the steps of one process."""

    def __init__(self) -> None:
        self._limits: list[int] = []
        self._sites = 0

    def step(self, facts: "StepFacts") -> Iterator[Length]:
        """The calls in a step, those of evaluations included."""
        sites = facts.source.sites
        for number in range(self._sites, len(sites)):
            if _LIMIT.fullmatch(sites[number].site.field):
                self._limits.append(number)
        self._sites = len(sites)
        if not self._limits:
            return
        inputs, outputs = facts.rows(Role.INPUT), facts.rows(Role.OUTPUT)
        for row in inputs[np.isin(facts.columns.site[inputs], self._limits)].tolist():
            limit = facts.scalar(row)
            if type(limit) is not int or limit < 1:
                continue
            owner = facts.subject(np.array([row]))[0]
            # A call is its inputs, then its outputs; its own inner calls have other modules.
            before = [at for at in inputs[inputs < row].tolist() if _is(facts, at, owner)]
            after = [at for at in outputs[outputs > row].tolist() if _is(facts, at, owner)]
            if before and after:
                given, got = facts.shape(before[-1])[1], facts.shape(after[0])[1]
                match = _LIMIT.fullmatch(facts.field(row))
                name = match[1] if match else ""
                length = got - given if "new" in name else got
                yield Length(row, facts.component(row), name, limit, length)


def _is(facts: "StepFacts", row: int, owner: int) -> bool:
    """Whether a row is a matrix, or more, of the module."""
    return (
        facts.columns.kind[row] == Kind.TENSOR
        and facts.subject(np.array([row]))[0] == owner
        and len(facts.shape(row)) > 1
    )
