"""The rows of one window, sorted by what they are to be put together with."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceparity.differ.observation import numpy_dtype
from traceparity.differ.sites import JointSites, SideTable
from traceparity.tracefmt.records import Columns, Flag, Kind, Phase, Site, StepEntry

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

IDS, DIGESTS = "sample_ids", "sample_digests"
_IN_MICRO_BATCH = frozenset({Phase.DATA, Phase.FORWARD, Phase.LOSS, Phase.BACKWARD})
# Plain numbers: flags of every row are looked at, and members of an enumeration are slow.
_CONTEXT, _EVALUATION = int(Flag.CONTEXT), int(Flag.EVALUATION)
_TENSOR = int(Kind.TENSOR)
_STATEFUL, _RECOMPUTED = int(Flag.STATEFUL), int(Flag.RECOMPUTED)


@dataclass(slots=True)
class Group:
    """What was seen of a site, the how-manyth time in its micro-batch, in each micro-batch.

    Attributes:
        site: Joint number of the site.
        call: The how-manyth time.
        rows: The row of each micro-batch that has one.
    """

    site: int
    call: int
    rows: dict[int, int] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The first row."""
        return next(iter(self.rows.values()))


class WindowRows:
    """One window of one trace.

    Attributes:
        trace: The trace as stored.
        sites: The joint table.
        columns: The rows as stored.
        count: How many micro-batches the window had.
        outside: Rows that belong to no micro-batch, or only explain.
        groups: The rows of micro-batches, by site and call.
        latest: The last row of what is a state rather than an event, by site: accumulated
            gradients, and buffers that a pass changed.
    """

    def __init__(
        self, trace: "Trace", entry: StepEntry, sites: JointSites, table: SideTable
    ) -> None:
        self.trace = trace
        self.sites = sites
        self.columns: Columns = trace.columns(entry.number)
        self.count = entry.micro_batches
        self.outside: list[int] = []
        self.groups: dict[tuple[int, int], Group] = {}
        self.latest: dict[int, int] = {}
        self._calls: dict[tuple[int, int], int] = {}
        self._trained_on: dict[str, bool] = {}
        self._kind: list[int] = self.columns.kind.tolist()
        self._site: list[int] = table.joint[self.columns.site].tolist()
        flags, microbatches = self.columns.flags.tolist(), self.columns.microbatch.tolist()
        for row, (number, flag, microbatch) in enumerate(
            zip(self._site, flags, microbatches, strict=True)
        ):
            self._sort(row, number, flag, microbatch)

    def _sort(self, row: int, number: int, flags: int, microbatch: int) -> None:
        site = self.sites.sites[number]
        if site.phase not in _IN_MICRO_BATCH or flags & _EVALUATION:
            self.outside.append(row)
        elif site.phase == Phase.DATA:
            self._sort_data(row, site, number, flags, microbatch)
        elif flags & _CONTEXT:
            self.outside.append(row)
        elif flags & _STATEFUL or (site.phase == Phase.BACKWARD and site.field == "grad"):
            self.latest[number] = row
        elif not flags & _RECOMPUTED:
            self._group(row, number, microbatch)

    def _sort_data(self, row: int, site: Site, number: int, flags: int, microbatch: int) -> None:
        # Of what only explains the digests of samples are of use, if their batch was trained on:
        # the recorder writes them after its sample IDs.
        trained_on = not flags & _CONTEXT
        if site.field == IDS:
            self._trained_on[site.component] = trained_on
        elif site.field == DIGESTS:
            trained_on = self._trained_on.get(site.component, False)
        if trained_on:
            self._group(row, number, microbatch)

    def _group(self, row: int, site: int, microbatch: int) -> None:
        call = self._calls.get((site, microbatch), 0)
        self._calls[site, microbatch] = call + 1
        group = self.groups.get((site, call))
        if group is None:
            group = self.groups[site, call] = Group(site, call)
        group.rows[microbatch] = row

    # -- single rows --------------------------------------------------------------------------

    def is_tensor(self, row: int) -> bool:
        """Whether a row is a tensor."""
        return self._kind[row] == _TENSOR

    def shape(self, row: int) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.trace.shapes[int(self.columns.shape[row])]

    def dtype(self, row: int) -> str:
        """The dtype of a tensor, without ``torch.``."""
        return self.trace.strings[int(self.columns.dtype[row])].removeprefix("torch.")

    def plain(self, row: int) -> Any:
        """The value of a row that is no tensor."""
        return self.trace.scalar(self.columns, row)

    def has_value(self, row: int) -> bool:
        """Whether all bytes of a tensor were kept, in the order of its elements."""
        dtype = numpy_dtype(self.dtype(row))
        elements = int(np.prod(self.shape(row), dtype=np.int64))
        return (
            dtype is not None
            and self.columns.value_offset[row] >= 0
            and int(self.columns.value_length[row]) == elements * dtype.itemsize
        )

    def array(self, row: int) -> npt.NDArray[Any] | None:
        """The elements of a tensor; None where they were not kept."""
        dtype = numpy_dtype(self.dtype(row))
        data = self.trace.value(self.columns, row) if self.has_value(row) else None
        if data is None or dtype is None:
            return None
        return np.frombuffer(data, dtype).reshape(self.shape(row))

    # -- samples ------------------------------------------------------------------------------

    def of_phase(self, phase: Phase, field_name: str | None = None) -> Iterator[tuple[Site, Group]]:
        """The groups of a phase, perhaps of one field only, with their site."""
        for group in self.groups.values():
            site = self.sites.sites[group.site]
            if site.phase == phase and field_name in (None, site.field):
                yield site, group

    def joined_list(self, group: Group) -> list[Any] | None:
        """The lists of all micro-batches one after the other; None where one is unknown."""
        lists = [self.plain(row) for row in group.rows.values()]
        if not all(isinstance(each, list) for each in lists):
            return None
        return [item for each in lists for item in each]

    @cached_property
    def sample_ids(self) -> dict[str, list[Any]]:
        """The sample IDs of the window by loader, where they are known."""
        found: dict[str, list[Any]] = {}
        for site, group in self.of_phase(Phase.DATA, IDS):
            if (ids := self.joined_list(group)) is not None:
                found.setdefault(site.component, []).extend(ids)
        return found

    @cached_property
    def sizes(self) -> list[int] | None:
        """How many samples each micro-batch had; None where nothing tells."""
        for field_name in (IDS, DIGESTS):
            for _, group in self.of_phase(Phase.DATA, field_name):
                if sizes := self._sizes(group, lambda row: _length(self.plain(row))):
                    return sizes
        for phase in (Phase.DATA, Phase.FORWARD):
            for _, group in self.of_phase(phase):
                if sizes := self._sizes(group, lambda row: _length(self.shape(row), first=True)):
                    return sizes
        return None

    def _sizes(self, group: Group, size: Callable[[int], int]) -> list[int] | None:
        if len(group.rows) != self.count:
            return None
        sizes = [size(row) for row in group.rows.values()]
        return sizes if all(sizes) else None


def _length(value: Any, *, first: bool = False) -> int:
    """The length of a list, or the first number in it; 0 for what has none."""
    if not isinstance(value, list | tuple) or not value:
        return 0
    return int(value[0]) if first else len(value)
