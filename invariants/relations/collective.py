"""C, the collective law: the same exchanges on all processes, in the same order and size."""

from collections.abc import Iterator, Sequence

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.state import Ids, Mask
from traceparity.invariants.template import Event, Template
from traceparity.tracefmt.records import Phase

_NAMES = frozenset(
    {
        "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor",
        "all_gather_single", "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor",
        "reduce_scatter_single", "all_to_all", "all_to_all_single", "barrier", "all_gather_object",
        "broadcast_object_list", "gather_object", "scatter_object_list",
    }
)  # fmt: skip
_MOST_SAID = 12

ORDER = Template(
    id="collective.order",
    phase=Phase.FORWARD,
    noun="steps with collectives",
    says="call {}",
    fields=("epoch_end",),
    most_outcomes=3,
    hint="a process calls a collective more or less often, or in another order, and others wait",
    shows="called",
)
ALIKE = Template(
    id="collective.alike",
    phase=Phase.FORWARD,
    noun="collectives",
    says={
        True: "are given the same dtypes and sizes on all ranks, as often",
        False: "are given other dtypes or sizes on some ranks, or more often",
    },
    fields=("collective",),
    scope=("collective",),
    proposed=(True,),
    hint="ranks disagree on what they exchange, which hangs or mixes up values: look at the splits",
    shows="input[0]",
)


class _Rows:
    """Finds the rows of collectives in the steps of one process."""

    def __init__(self) -> None:
        self._called: Mask = np.zeros(0, bool)

    def of(self, facts: StepFacts) -> Ids:
        """The row that tells of each call: its first tensor in, or that it was called."""
        sites = facts.source.sites
        if len(self._called) < len(sites):
            new = [
                entry.site.component in _NAMES and entry.site.field in ("input[0]", "called")
                for entry in sites[len(self._called) :]
            ]
            self._called = np.concatenate([self._called, np.array(new, bool)])
        found: Ids = np.flatnonzero(self._called[facts.columns.site])
        return found


class Observer:
    """Which collectives a process calls."""

    def __init__(self) -> None:
        self._rows = _Rows()

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        rows = self._rows.of(facts).tolist()
        if not rows:
            return
        names = [facts.component(row) for row in rows]
        said = ", ".join(names[:_MOST_SAID])
        if len(names) > _MOST_SAID:
            said += f" and {len(names) - _MOST_SAID} more"
        ended = bool(facts.pass_ends)
        yield Event(ORDER, (ended,), said, component=names[0], row=rows[0])


class RankObserver:
    """What processes give to collectives."""

    def __init__(self) -> None:
        self._rows: dict[int, _Rows] = {}

    def step(self, ranks: Sequence[StepFacts]) -> Iterator[Event]:
        """The events of a step of all processes."""
        given: list[dict[str, list[str]]] = []
        first: dict[str, int] = {}
        for facts in ranks:
            of_rank: dict[str, list[str]] = {}
            for row in self._rows.setdefault(facts.rank, _Rows()).of(facts).tolist():
                name = facts.component(row)
                size = "x".join(map(str, facts.shape(row)))
                of_rank.setdefault(name, []).append(f"{facts.dtype(row)} {size}".strip())
                if facts is ranks[0]:
                    first.setdefault(name, row)
            given.append(of_rank)
        for name in sorted({name for of_rank in given for name in of_rank}):
            lists = [of_rank.get(name, []) for of_rank in given]
            alike = all(each == lists[0] for each in lists[1:])
            seen = (
                ""
                if alike
                else "; ".join(
                    f"rank {facts.rank}: {', '.join(each[:3]) or 'none'}"
                    for facts, each in zip(ranks, lists, strict=True)
                )
            )
            row = first.get(name, -1)
            yield Event(ALIKE, (name,), alike, component=name, row=row, seen=seen)


TEMPLATES = (ORDER, ALIKE)
