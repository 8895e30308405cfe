"""Groups: the steps of a run as they go by, turned into facts once for all that judge them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.reading import FactsReader
from traceparity.tracefmt.records import Columns

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


class GroupJudge(Protocol):
    """Judges a run step after step, all processes of a step at once."""

    def begin_segment(self) -> None:
        """What follows is read from other traces, in which the run went on."""
        ...

    def group(self, group: Sequence[StepFacts]) -> None:
        """The next step, of all processes that have it, by rank."""
        ...


class StepGroups:
    """Takes steps in order, in a step rank by rank, and gives them to judges."""

    def __init__(self, judges: Sequence[GroupJudge]) -> None:
        self._judges = judges
        self._readers: dict[int, FactsReader] = {}
        self._tails: dict[int, set[int]] = {}
        self._group: list[StepFacts] = []
        self._begun = False

    def begin_segment(self, ranks: Mapping[int, "Trace"]) -> None:
        """What follows is read from these traces."""
        self.end()
        if self._begun:
            for judge in self._judges:
                judge.begin_segment()
        self._begun = True
        self._readers = {rank: FactsReader(trace, rank) for rank, trace in ranks.items()}
        self._tails = {
            rank: {entry.number for entry in trace.steps if entry.tail}
            for rank, trace in ranks.items()
        }

    def step(self, rank: int, number: int, columns: Columns) -> None:
        """The next step of a process."""
        if self._group and self._group[0].step != number:
            self.end()
        tail = number in self._tails[rank]
        self._group.append(self._readers[rank].step(number, columns, tail=tail))

    def end(self) -> None:
        """There are no more steps."""
        if self._group:
            for judge in self._judges:
                judge.group(self._group)
            self._group = []
