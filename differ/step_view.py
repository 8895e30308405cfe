"""One step of one trace, its rows translated to joint numbers and sorted into blocks."""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceparity.differ.observation import Observation, observe
from traceparity.differ.policy import PHASES, Policy
from traceparity.differ.sites import Ids, JointSites, SideTable
from traceparity.tracefmt import limits
from traceparity.tracefmt.records import Columns, Flag, Kind, Phase, StepEntry

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

Mask = npt.NDArray[np.bool_]
Index = slice | npt.NDArray[Any]
"""Chooses rows; a slice chooses them without a copy."""
_IN_MICROBATCH = 4
_AFTER_MICROBATCHES = 1 << 40
_KEPT_STEPS = 4
_LAYOUT = ("site", "call", "microbatch", "kind", "flags", "dtype", "shape")
"""Columns that tell what a row is, apart from its value."""
FIRST_BATCH = 2
"""Number of the block with the first batch of a step."""


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a step in which rows are matched: a phase, in a micro-batch where it has one.

    Attributes:
        number: Sorts blocks in the order of a step.
        phase: The phase.
        microbatch: The micro-batch; 0 for the phases outside of micro-batches.
        evaluation: Whether the block holds evaluation activity.
    """

    number: int
    phase: Phase
    microbatch: int
    evaluation: bool

    @property
    def is_sequence(self) -> bool:
        """Whether the order of rows means something, so that they are matched as a sequence."""
        return self.phase in (Phase.DATA, Phase.FORWARD, Phase.LOSS, Phase.BACKWARD)


@lru_cache(1 << 12)
def block_of(number: int) -> Block:
    """The block with a number as `StepView.block` has it."""
    base, evaluation = divmod(number, 2)
    if base >= _AFTER_MICROBATCHES:
        return Block(number, Phase(base - _AFTER_MICROBATCHES), 0, bool(evaluation))
    if base == 0:
        return Block(number, Phase.STATE, 0, bool(evaluation))
    microbatch, phase = divmod(base - 1, _IN_MICROBATCH)
    return Block(number, Phase(phase + 1), microbatch, bool(evaluation))


def number_after(phase: Phase) -> int:
    """Number of the block of a phase that is outside of micro-batches."""
    return 0 if phase == Phase.STATE else 2 * (_AFTER_MICROBATCHES + phase)


def stretch(rows: npt.NDArray[np.signedinteger[Any]]) -> Index:
    """An index for rows; a slice, which copies nothing, where they follow one another."""
    count = len(rows)
    if count and int(rows[-1]) - int(rows[0]) == count - 1 and bool((rows[1:] > rows[:-1]).all()):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


class Layout:
    """What the rows of a step are, apart from their values. Steps of a training share one.

    Attributes:
        site: Joint number of each row.
        thing: Thing number of each row.
        phase: Phase of each row.
        judged: Rows that decide under the policy.
        stateful: Rows of things that stay until they change.
        context: Rows that explain but never decide.
        evaluation: Rows of evaluation activity.
        block: Number of each row's block; see `block_of`.
        call: The how-manyth time the site was seen.
        has_listing: Whether something is listed in full.
        partner: A layout of the other side, with what was found out about the two of them.
    """

    def __init__(
        self, columns: Columns, sites: JointSites, table: SideTable, policy: Policy
    ) -> None:
        self.site: Ids = table.joint[columns.site]
        self.thing: Ids = sites.thing_of[self.site]
        self.phase: Ids = sites.phase_of[self.site]
        flags = columns.flags
        self.stateful: Mask = (flags & Flag.STATEFUL) != 0
        self.context: Mask = (flags & Flag.CONTEXT) != 0
        self.evaluation: Mask = (flags & Flag.EVALUATION) != 0
        self.repeated: Mask = (flags & Flag.RECOMPUTED) != 0
        self.has_listing = bool((flags & Flag.SNAPSHOT).any())
        self.judged: Mask = self._judged(sites, policy)
        self.block: Ids = self._blocks(columns.microbatch)
        self.call = columns.call
        self.partner: tuple[Layout, object] | None = None
        self._explaining: dict[frozenset[str], int] = {}

    def _judged(self, sites: JointSites, policy: Policy) -> Mask:
        judged = ~self.context
        if policy.align.evaluation == "compare":
            judged |= self.evaluation
        if policy.align.rng == "compare":
            judged |= sites.is_rng[self.site]
        if policy.align.order == "free":
            judged &= self.phase != Phase.DATA
        # Recomputation repeats a forward pass inside backward: no event of the training itself.
        judged &= ~self.repeated | self.stateful
        if len(policy.align.phases) < len(PHASES):
            wanted = np.array([name in policy.align.phases for name in PHASES])
            judged &= wanted[self.phase]
        return judged & ~sites.ignored[self.site]

    def _blocks(self, microbatches: npt.NDArray[np.uint32]) -> Ids:
        inside = 1 + _IN_MICROBATCH * microbatches.astype(np.int64) + (self.phase - 1)
        base = np.where(self.phase <= Phase.BACKWARD, inside, _AFTER_MICROBATCHES + self.phase)
        base[self.phase == Phase.STATE] = 0
        return base * 2 + self.evaluation

    @cached_property
    def judged_rows(self) -> Ids:
        """The rows that decide."""
        return np.flatnonzero(self.judged)

    @cached_property
    def block_sizes(self) -> dict[int, int]:
        """How many rows decide in each block that has any."""
        numbers, counts = np.unique(self.block[self.judged_rows], return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    @cached_property
    def ignored(self) -> int:
        """Rows that the policy leaves out."""
        return int((~self.context & ~self.judged).sum())

    def explaining(self, phases: Collection[str]) -> int:
        """Rows of some phases that explain and do not decide, as the index counts them too."""
        key = frozenset(phases)
        if key not in self._explaining:
            wanted = np.array([name in phases for name in PHASES])
            rows = (self.context | self.repeated) & ~self.judged & wanted[self.phase]
            self._explaining[key] = int(rows.sum())
        return self._explaining[key]


class StepView:
    """The rows of a step.

    Attributes:
        number: The step's number in its own trace.
        columns: The rows as stored.
        layout: What the rows are, apart from their values.
        site: Joint number of each row.
        thing: Thing number of each row.
        phase: Phase of each row.
        judged: Rows that decide under the policy.
        stateful: Rows of things that stay until they change.
        context: Rows that explain but never decide.
        evaluation: Rows of evaluation activity.
        block: Number of each row's block; see `block_of`.
        is_whole: Whether the step lists all that it starts from. What joins a run later, a
            scheduler say, is listed in full too, which says nothing of the rest.
    """

    def __init__(
        self, trace: "Trace", number: int, columns: Columns, layout: Layout, *, begins: bool
    ) -> None:
        self.trace = trace
        self.number = number
        self.columns = columns
        self.layout = layout
        self.site = layout.site
        self.thing = layout.thing
        self.phase = layout.phase
        self.judged = layout.judged
        self.stateful = layout.stateful
        self.context = layout.context
        self.evaluation = layout.evaluation
        self.block = layout.block
        self.is_whole = begins and layout.has_listing

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def ignored(self) -> int:
        """Rows that the policy leaves out."""
        return self.layout.ignored

    @cached_property
    def gradient_tensors(self) -> frozenset[int]:
        """Things that received a gradient tensor in this step."""
        in_phase = (self.phase == Phase.GRADIENT) | (self.phase == Phase.BACKWARD)
        return frozenset(self.thing[in_phase & (self.columns.kind == Kind.TENSOR)].tolist())

    def rows(self, phase: Phase, number: int | None) -> list[int]:
        """Rows of a site, context included, in order; none for a site that does not exist."""
        if number is None:
            return []
        return np.flatnonzero((self.site == number) & (self.phase == phase)).tolist()

    def observation(self, row: int) -> Observation:
        """The observation in a row."""
        return observe(self.trace, self.columns, row, longest=limits.MAX_VALUE)

    def last_rows(self, rows: Mask) -> dict[int, int]:
        """The last row of each thing among ``rows``."""
        found = np.flatnonzero(rows)
        return dict(zip(self.thing[found].tolist(), found.tolist(), strict=True))


class Steps:
    """The steps of one side, the last few kept in memory."""

    def __init__(self, trace: "Trace", sites: JointSites, table: SideTable, policy: Policy) -> None:
        self.trace = trace
        self.sites = sites
        self.table = table
        self.entries: dict[int, Any] = {step.number: step for step in trace.steps}
        self.numbers: list[int] = list(self.entries)
        self._policy = policy
        self._kept: OrderedDict[int, StepView] = OrderedDict()
        self._layouts: OrderedDict[tuple[bytes, ...], Layout] = OrderedDict()
        self._latest: tuple[list[npt.NDArray[Any]], Layout] | None = None

    def __getitem__(self, number: int) -> StepView:
        view = self._kept.get(number)
        if view is None:
            columns = self.trace.columns(number)
            layout = self._layout(columns)
            view = StepView(self.trace, number, columns, layout, begins=self._begins(number))
            self._kept[number] = view
            if len(self._kept) > _KEPT_STEPS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(number)
        return view

    @cached_property
    def windowed(self) -> bool:
        """Whether the recording was told to leave out steps."""
        capture = self.trace.header.capture
        return bool(capture.get("steps")) or capture.get("every", 1) not in (None, 0, 1)

    def _begins(self, number: int) -> bool:
        """Whether the recorder had told of nothing before a step, or had left out steps since."""
        return number == self.numbers[0] or (self.windowed and number - 1 not in self.entries)

    def extend(self, entries: Iterable[StepEntry]) -> None:
        """Take in steps that a growing trace has got since, or that got more."""
        for entry in entries:
            if entry.number not in self.entries:
                self.numbers.append(entry.number)
            self.entries[entry.number] = entry
            self._kept.pop(entry.number, None)

    def _layout(self, columns: Columns) -> Layout:
        told = [getattr(columns, name) for name in _LAYOUT]
        # The reader gives the very arrays of the step before where they are the same.
        if self._latest and all(map(is_, told, self._latest[0])):
            return self._latest[1]
        layout = self._known_layout(columns, tuple(column.tobytes() for column in told))
        self._latest = told, layout
        return layout

    def _known_layout(self, columns: Columns, key: tuple[bytes, ...]) -> Layout:
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = Layout(columns, self.sites, self.table, self._policy)
            if len(self._layouts) > _KEPT_STEPS:
                self._layouts.popitem(last=False)
        return layout

    def location(self, site: int) -> str:
        """The source line that first led to a site in this trace; empty where unknown."""
        return self.table.location.get(site, "")
