"""Reading: from traces to the facts of one step after the other, in one pass."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from traceparity.invariants.facts import Source, StepFacts, view_of
from traceparity.invariants.roles import Names, Role
from traceparity.invariants.state import Carried, Ids
from traceparity.invariants.tables import Values
from traceparity.tracefmt.records import Columns, Phase

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


class FactsReader:
    """Turns the steps of one process into facts; they must come in order."""

    def __init__(self, source: Source, rank: int = 0) -> None:
        self._source = source
        self._rank = rank
        self._view = view_of(source)
        self._noted = len(source.not_observed)
        self._names = Names()
        self._state = Carried()
        self._last: int | None = None
        self._told = np.zeros((0, 2), np.uint64)
        self._plain: list[Any] = []

    def step(self, number: int, columns: Columns, *, tail: bool = False) -> StepFacts:
        """The facts of the next step; those of the step before are no longer valid."""
        names, state = self._names, self._state
        names.extend(self._source.sites)
        if self._noted != len(self._source.not_observed):
            # Of a trace that is still being written.
            self._noted, self._view = len(self._source.not_observed), view_of(self._source)
        state.grow(len(names.tensors), len(names.modules))
        role = names.role[columns.site]
        facts = StepFacts(
            rank=self._rank,
            step=number,
            tail=tail,
            gap=self._last is not None and number != self._last + 1,
            first=self._last is None,
            view=self._view,
            source=self._source,
            columns=columns,
            names=names,
            state=state,
            role=role,
        )
        self._last = number
        facts.rates_before = _rates(state)
        facts.values = self._values(facts)
        self._carry(facts)
        return facts

    def _values(self, facts: StepFacts) -> Values:
        state, columns = self._state, facts.columns
        rows = facts.rows(Role.VALUE)
        tensor, digest = facts.subject(rows), columns.digest[rows]
        order = np.argsort(tensor, kind="stable")
        sorted_tensor, sorted_digest = tensor[order], digest[order]
        # What was told of a tensor before: the row before in this step, else what was carried.
        before, known = state.digest[sorted_tensor], state.known[sorted_tensor]
        again = np.zeros(len(rows), bool)
        again[1:] = sorted_tensor[1:] == sorted_tensor[:-1]
        at = np.flatnonzero(again)
        before[at], known[at] = sorted_digest[at - 1], True
        changed, first = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        changed[order] = known & (before != sorted_digest).any(axis=1)
        first[order] = ~known
        # Of repeated tensors numpy keeps the last assignment, which is the newest row.
        state.digest[tensor], state.known[tensor] = digest, True
        return Values(
            rows, tensor, facts.phase(rows), columns.microbatch[rows], digest, changed, first,
            columns.stats[rows, 2], columns.nonfinite[rows],
        )  # fmt: skip

    def _carry(self, facts: StepFacts) -> None:
        state, names = self._state, self._names
        for row, tensor in self._news(facts, Role.REQUIRES_GRAD):
            state.is_parameter[tensor] = True
            state.requires_grad[tensor] = bool(self._value(facts, row))
        for row, module in self._news(facts, Role.TRAINING):
            if facts.names.phase[facts.columns.site[row]] == Phase.STATE:
                state.training[module] = bool(self._value(facts, row))
        for row, tensor in self._news(facts, Role.GROUP):
            state.group[tensor] = str(self._value(facts, row))
        for row, tensor in self._news(facts, Role.SHARED_WITH):
            state.shared_with[names.tensors[tensor]] = str(self._value(facts, row))
        for row, number in self._news(facts, Role.CLASS):
            state.classes[names.components[number]] = str(self._value(facts, row))
        for row, number in self._news(facts, Role.SETTINGS):
            state.settings[names.components[number]] = self._value(facts, row)
        for row, number in self._news(facts, Role.COUNTER):
            state.counters[names.components[number]] = self._value(facts, row)
        self._hyperparameters(facts)

    def _hyperparameters(self, facts: StepFacts) -> None:
        known = self._state.hyperparameters
        rows = facts.rows(Role.HYPERPARAMETER)
        sites = facts.columns.site[rows]
        for row, number in self._news(facts, Role.HYPERPARAMETER):
            group = facts.names.components[number]
            known.setdefault(group, {})[facts.field(row)] = self._value(facts, row)
        phases = facts.names.phase[sites]
        for phase, rates in (
            (Phase.OPTIMIZER, facts.rates_used),
            (Phase.SCHEDULER, facts.rates_after),
        ):
            for row in rows[phases == phase].tolist():
                if facts.field(row) == "lr":
                    value = self._value(facts, row)
                    if isinstance(value, int | float):
                        rates[facts.component(row)] = float(value)

    def _news(self, facts: StepFacts, role: Role) -> Iterator[tuple[int, int]]:
        """``(row, subject)`` of the rows of a role that say something else than the last time."""
        rows = facts.rows(role)
        if not len(rows):
            return
        self._make_room()
        sites = facts.columns.site[rows]
        if role in (Role.HYPERPARAMETER, Role.COUNTER):
            # Told in several phases: news of one site are no news after those of another.
            new: Ids = rows
        else:
            told = (self._told[sites] == facts.columns.digest[rows]).all(axis=1)
            new = rows[~told]
        for row in new.tolist():
            yield row, int(facts.names.subject[facts.columns.site[row]])

    def _value(self, facts: StepFacts, row: int) -> Any:
        """The plain value in a row, decoded only where the site said something else last time."""
        site, digest = int(facts.columns.site[row]), facts.columns.digest[row]
        self._make_room()
        told = self._told[site]
        if told[0] != digest[0] or told[1] != digest[1]:
            self._plain[site] = _plain(facts, row)
            self._told[site] = digest
        return self._plain[site]

    def _make_room(self) -> None:
        more = len(self._source.sites) - len(self._plain)
        if more > 0:
            self._told = np.concatenate([self._told, np.zeros((more, 2), np.uint64)])
            self._plain += [None] * more


def _plain(facts: StepFacts, row: int) -> Any:
    value = facts.scalar(row)
    if value is not None:
        return value
    number = facts.number(row)
    return None if number != number else number


def _rates(state: Carried) -> dict[str, float]:
    rates = {}
    for group, values in state.hyperparameters.items():
        rate = values.get("lr")
        if isinstance(rate, int | float):
            rates[group] = float(rate)
    return rates


def read_groups(traces: Mapping[int, "Trace"]) -> Iterator[list[StepFacts]]:
    """The facts of a run, step after step: those of all processes that have the step, by rank.

    Raises:
        TraceFormatError: A step is damaged, or too long for one table.
    """
    readers = {rank: FactsReader(trace, rank) for rank, trace in traces.items()}
    waiting = {rank: deque(trace.steps) for rank, trace in traces.items()}
    while numbers := [entries[0].number for entries in waiting.values() if entries]:
        number = min(numbers)
        group = []
        for rank, entries in waiting.items():
            if entries and entries[0].number == number:
                tail = entries.popleft().tail
                group.append(readers[rank].step(number, traces[rank].columns(number), tail=tail))
        yield group


def read_run(traces: Mapping[int, "Trace"]) -> Iterator[StepFacts]:
    """The facts of all processes of a run, by step, then by rank.

    Raises:
        TraceFormatError: A step is damaged, or too long for one table.
    """
    for group in read_groups(traces):
        yield from group
