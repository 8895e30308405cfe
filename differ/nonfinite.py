"""Non-finite values: the places where a run had infinities and NaNs that it should not have had.

In a loss, a gradient, an optimizer's state or an updated parameter any of them counts. Elsewhere,
in batches, inputs, outputs and buffers, infinities alone are masks and sentinels of sound programs,
so that only NaNs count. The gradients of an update that the gradient scaler left out do not count:
an overflow that costs one update is how it finds its scale.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceparity.differ.observation import Observation, observe
from traceparity.differ.policy import Policy
from traceparity.tracefmt.records import Columns, Flag, Kind, Phase

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

MOST_PLACES = 100
"""Places that are told one by one; all are counted."""

_ANY_COUNTS = (Phase.LOSS, Phase.BACKWARD, Phase.GRADIENT, Phase.OPTIMIZER)
_SCALED = (Phase.BACKWARD, Phase.GRADIENT)
_IN_MICROBATCH = (Phase.DATA, Phase.FORWARD, Phase.LOSS, Phase.BACKWARD)
# Plain numbers: arithmetic with members of an enum is slow, and there is some for every chunk.
_NO_PART = int(Flag.CONTEXT | Flag.RECOMPUTED)
_NONFINITE = int(Flag.NONFINITE)
_TENSOR = int(Kind.TENSOR)
_MOST_BYTES = 1 << 10
_INEXACT = ("float", "bfloat", "complex")


Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NonFinite:
    """A place that holds infinities or NaNs.

    Attributes:
        rank: Process.
        step: Step of the trace.
        microbatch: Micro-batch.
        call: The how-manyth time the site was seen.
        phase: Phase.
        component: Component.
        field: Field.
        seen: The tensor.
        location: Source line that first led to the site.
    """

    rank: int
    step: int
    microbatch: int
    call: int
    phase: str
    component: str
    field: str
    seen: Observation
    location: str


class NonFiniteAudit:
    """Takes the chunks of a run in order and finds its non-finite values.

    Attributes:
        first: The first places, by step, then in the order of a step.
        total: Places that count.
        judged: Tensors of inexact numbers that were looked at.
        masks: Places with infinities alone that do not count.
        left_out: Places whose update the gradient scaler left out.
    """

    def __init__(self, policy: Policy) -> None:
        self.first: list[NonFinite] = []
        self.total = 0
        self.judged = 0
        self.masks = 0
        self.left_out = 0
        self._policy = policy
        self._tables: dict[int, _SiteTable] = {}
        self._skipped = False
        self._rows: list[tuple[Columns, Rows]] = []

    def begin_segment(self) -> None:
        """What follows is read from other traces."""
        self._tables = {}

    def take(self, rank: int, trace: "Trace", columns: Columns) -> None:
        """The next chunk of a step of a rank."""
        table = self._tables.get(rank)
        if table is None:
            table = self._tables[rank] = _SiteTable(trace, self._policy)
        flags = columns.flags
        self._skipped |= bool(table.skips[columns.site].any())
        judged = (columns.kind == _TENSOR) & ~table.ignored[columns.site]
        judged &= (flags & _NO_PART) == 0
        self.judged += int(np.count_nonzero(judged & table.inexact[columns.dtype]))
        rows = np.flatnonzero(judged & ((flags & _NONFINITE) != 0))
        if not len(rows):
            return
        counts = np.isin(table.phase[columns.site[rows]], _ANY_COUNTS)
        counts[~counts] = [_holds_nan(trace, columns, row) for row in rows[~counts].tolist()]
        self.masks += len(rows) - int(counts.sum())
        self._rows.append((columns, rows[counts]))

    def end_step(self, rank: int, trace: "Trace", step: int) -> None:
        """A step of a rank has no more chunks."""
        table, rows, skipped = self._tables.get(rank), self._rows, self._skipped
        self._rows, self._skipped = [], False
        if table is None or not rows:
            return
        places: list[tuple[tuple[int, ...], Columns, int]] = []
        for columns, found in rows:
            phases = table.phase[columns.site[found]]
            if skipped:
                scaled = np.isin(phases, _SCALED)
                self.left_out += int(scaled.sum())
                found, phases = found[~scaled], phases[~scaled]
            self.total += len(found)
            if not self._is_full(step):
                batches = columns.microbatch[found]
                order = [
                    _order(*each) for each in zip(phases.tolist(), batches.tolist(), strict=True)
                ]
                places += [
                    (key, columns, row) for key, row in zip(order, found.tolist(), strict=True)
                ]
        places.sort(key=lambda place: place[0])
        found_here = [_found(rank, trace, step, *place[1:]) for place in places[:MOST_PLACES]]
        self.first += found_here
        if found_here:
            self.first.sort(key=lambda found: (found.step, _order_of(found), found.rank))

    def _is_full(self, step: int) -> bool:
        """Whether places of this step come after all that are told."""
        return len(self.first) >= MOST_PLACES and self.first[MOST_PLACES - 1].step < step


def _holds_nan(trace: "Trace", columns: Columns, row: int) -> bool:
    """Whether a tensor that is not finite holds a NaN, and not infinities alone."""
    if columns.value_offset[row] >= 0 and columns.value_length[row] <= _MOST_BYTES:
        array = observe(trace, columns, row).array()
        if array is not None:
            return bool(np.isnan(array).any())
    return bool(np.isnan(columns.stats[row, 2]))


def _order(phase: int, microbatch: int) -> tuple[int, int]:
    """Where in a step something is."""
    if phase in _IN_MICROBATCH:
        return 1 + microbatch, phase
    return (0 if phase == Phase.STATE else 1 << 40), phase


def _order_of(found: NonFinite) -> tuple[int, int]:
    return _order(Phase[found.phase.upper()], found.microbatch)


class _SiteTable:
    """What the ids of one trace mean for non-finite values."""

    def __init__(self, trace: "Trace", policy: Policy) -> None:
        sites = [entry.site for entry in trace.sites]
        self.phase: Rows = np.array([site.phase for site in sites], np.int64)
        self.skips: npt.NDArray[np.bool_] = np.array(
            [site.phase == Phase.OPTIMIZER and site.field == "skipped" for site in sites], bool
        )
        self.ignored: npt.NDArray[np.bool_] = np.array(
            [policy.rule_for((str(site),)).ignore for site in sites], bool
        )
        self.inexact: npt.NDArray[np.bool_] = np.array(
            [name.removeprefix("torch.").startswith(_INEXACT) for name in trace.strings], bool
        )


def _found(rank: int, trace: "Trace", step: int, columns: Columns, row: int) -> NonFinite:
    entry = trace.sites[columns.site[row]]
    return NonFinite(
        rank=rank,
        step=step,
        microbatch=int(columns.microbatch[row]),
        call=int(columns.call[row]),
        phase=entry.site.phase.label,
        component=entry.site.component,
        field=entry.site.field,
        seen=observe(trace, columns, row, longest=_MOST_BYTES),
        location=entry.location,
    )
