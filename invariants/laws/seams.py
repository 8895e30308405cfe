"""Seams: where a run that stopped goes on in another trace, its state goes on too."""

from collections.abc import Iterator

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding
from traceparity.invariants.laws.schedules import SCHEDULE_FOLLOWED
from traceparity.invariants.laws.updates import MOMENTS_KEPT
from traceparity.invariants.roles import Role
from traceparity.tracefmt.records import Phase


class Seam:
    """Compares what one process left with what it goes on with in the next trace.

    It goes on where all parameters begin as they were left. Where they do not, from a checkpoint
    before the end or from the beginning, nothing is known of what the state should be.
    """

    def __init__(self) -> None:
        self._last: StepFacts | None = None
        self._left: StepFacts | None = None
        self._kept: set[str] = set()

    def begin_segment(self) -> None:
        """What follows is read from another trace."""
        self._left, self._last = self._last, None

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step: the first one that updates in a trace is that which goes on."""
        left = self._left
        if left is not None and facts.first and facts.updated and _goes_on(left, facts):
            yield from self._moments(facts)
            yield from _schedules(left, facts)
        self._left = None
        self._last = facts
        if facts.first:
            self._kept.clear()
        if facts.updated:
            self._kept |= {facts.component(row) for row in _rows(facts, Phase.OPTIMIZER)}

    def _moments(self, facts: StepFacts) -> Iterator[Finding]:
        loaded = {facts.component(row) for row in _rows(facts, Phase.STATE)}
        for row in _rows(facts, Phase.OPTIMIZER):
            optimizer = facts.component(row)
            if optimizer in self._kept - loaded:
                loaded.add(optimizer)
                yield facts.finding(
                    MOMENTS_KEPT, Phase.STATE, optimizer, "state",
                    "the state that it had when the part before ended",
                    "none: the state was made anew", row=row,
                )  # fmt: skip


def _rows(facts: StepFacts, phase: Phase) -> list[int]:
    rows = facts.rows(Role.OPTIMIZER_STATE)
    found: list[int] = rows[facts.phase(rows) == phase].tolist()
    return found


def _goes_on(left: StepFacts, facts: StepFacts) -> bool:
    values = facts.values
    begins = np.flatnonzero(values.first & (values.phase == Phase.STATE))
    compared = 0
    for at, tensor in zip(begins.tolist(), values.tensor[begins].tolist(), strict=True):
        number = left.names.tensor(facts.names.tensors[tensor])
        if number is None or not facts.state.is_parameter[tensor] or not left.state.known[number]:
            continue
        if (left.state.digest[number] != values.digest[at]).any():
            return False
        compared += 1
    return compared > 0


def _schedules(left: StepFacts, facts: StepFacts) -> Iterator[Finding]:
    counters = facts.rows(Role.COUNTER)
    begun: dict[str, tuple[float, int]] = {}
    goes_on = False
    for row in counters[facts.phase(counters) == Phase.STATE].tolist():
        begun[facts.component(row)] = facts.number(row), row
    for name, count in left.state.counters.items():
        if not name.endswith(".last_epoch") or name not in begun or not isinstance(count, int):
            continue
        position, row = begun[name]
        if count > 0 and position == 0:
            yield facts.finding(
                SCHEDULE_FOLLOWED, Phase.STATE, name.rpartition(".")[0], "last_epoch",
                f"{count}, as the part before left it", "0: the scheduler begins anew", row=row,
            )  # fmt: skip
            return
        if position != count:
            return
        goes_on = True
    if not goes_on:
        # Without a scheduler that goes on, a rate may well be set by hand.
        return
    for group, rate in facts.rates_used.items():
        before = left.state.hyperparameters.get(group, {}).get("lr")
        if isinstance(before, int | float) and before != rate:
            yield facts.finding(
                SCHEDULE_FOLLOWED, Phase.OPTIMIZER, group, "lr",
                f"{before:g}, as the part before left it", f"{rate:g}",
            )  # fmt: skip
