"""Batches as a trace has them: which samples each held, and whether it was trained on."""

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from traceparity.differ.field_ids import FieldIds, FieldRow, UnknownIds
from traceparity.differ.policy import Coverage
from traceparity.differ.sample_ids import LARGEST, Numbers, SampleIds
from traceparity.tracefmt.records import Columns, Flag, Phase

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

_LOADER = re.compile(r"loader\[\d+\]")
_UNSET: Any = object()
_KEPT_SCALARS = 4096


class _Role(enum.IntEnum):
    """What a row says of its batch; the recorder writes them in this order."""

    FIELD = 0
    IDS = 1
    EPOCH = 2
    WORKER = 3
    LENGTH = 4
    LISTING = 5
    PASS_END = 6


_ROLE_OF = {
    "sample_ids": _Role.IDS,
    "epoch": _Role.EPOCH,
    "worker": _Role.WORKER,
    "dataset_length": _Role.LENGTH,
    "dataset_ids": _Role.LISTING,
    "pass_end": _Role.PASS_END,
}
_NOTHING = -1
_EVALUATION, _CONTEXT = int(Flag.EVALUATION), int(Flag.CONTEXT)


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """A batch.

    Attributes:
        loader: Component of its loader, ``loader[0]``.
        epoch: The pass over the loader, as recorded; None where that was left out.
        trained: Whether it was trained on, and not only fetched.
        microbatch: Which forward and backward pass of its step used it.
        untrained: Why a batch that training used was not trained on; empty for others.
        worker: Which loader worker made it; None where none did, or nobody knows.
        ids: Numbers of its samples; None where they are unknown.
        unknown: Why they are unknown.
        from_sampler: Whether they are what the sampler asked the dataset for.
        dataset_length: Samples of its dataset; None where unknown.
        listing: Numbers of all samples of the dataset, where this batch brings them.
    """

    loader: str
    epoch: int | None
    trained: bool
    worker: int | None
    ids: Numbers | None
    unknown: str
    from_sampler: bool
    dataset_length: int | None
    listing: Numbers | None
    microbatch: int = 0
    untrained: str = ""


@dataclass(frozen=True, slots=True)
class PassEnd:
    """A pass over a loader that delivered all that it had."""

    loader: str
    epoch: int


@dataclass(slots=True)
class _Draft:
    """A batch of which more rows may follow."""

    loader: str
    last: int = _NOTHING
    trained: bool = False
    microbatch: int = 0
    rows: list[FieldRow] = field(default_factory=list)
    sampler: Any = _UNSET
    epoch: int | None = None
    worker: int | None = None
    length: int | None = None
    listing: Any = None

    def ends_before(self, role: int, place: int | None) -> bool:
        """Whether a row of this role is the next batch's."""
        if role != self.last or role != _Role.FIELD:
            return role <= self.last
        return place is not None and place <= (self.rows[-1].place or 0)


class BatchRows:
    """Reads the batches of one trace, chunk by chunk."""

    def __init__(self, trace: "Trace", coverage: Coverage, ids: SampleIds) -> None:
        self._trace = trace
        self._id = coverage.id
        self._ids = ids
        self._fields = FieldIds(trace, coverage.id, ids)
        self._small: dict[bytes, Any] = {}
        self._drafts: dict[str, _Draft] = {}
        self._loaders = [entry.site.component for entry in trace.sites]
        roles = [self._role_of(number) for number in range(len(trace.sites))]
        self._roles = np.array(roles, np.int8)

    def _role_of(self, number: int) -> int:
        site = self._trace.sites[number].site
        if site.phase != Phase.DATA or not _LOADER.fullmatch(site.component):
            return _NOTHING
        # A sampler's description has the name that means its IDs in a policy.
        if self._id != "sampler" and self._fields.place_of(site.field) is not None:
            return _Role.FIELD
        return _ROLE_OF.get(site.field, _NOTHING)

    @property
    def has_ids(self) -> bool:
        """Whether the trace has any row that tells samples."""
        wanted = _Role.IDS if self._id == "sampler" else _Role.FIELD
        return bool((self._roles == wanted).any())

    def take(self, columns: Columns) -> Iterator[SeenBatch | PassEnd]:
        """What the next chunk of a step completes."""
        roles = self._roles[columns.site]
        decisive = (roles >= 0) & ((columns.flags & _EVALUATION) == 0)
        rows = np.flatnonzero(decisive)
        for row, role in zip(rows.tolist(), roles[rows].tolist(), strict=True):
            loader = self._loaders[columns.site[row]]
            if role == _Role.PASS_END:
                end = self._trace.scalar(columns, row)
                epoch = end.get("epoch") if isinstance(end, dict) else None
                yield from self._finish(loader)
                if type(epoch) is int:
                    yield PassEnd(loader, epoch)
                continue
            place = None
            if role == _Role.FIELD:
                place = self._fields.place_of(self._trace.sites[columns.site[row]].site.field)
            draft = self._drafts.get(loader)
            if draft is not None and draft.ends_before(role, place):
                yield from self._finish(loader)
                draft = None
            if draft is None:
                draft = self._drafts[loader] = _Draft(loader)
            self._add(draft, role, FieldRow(columns, row, place))

    def end_step(self) -> Iterator[SeenBatch | PassEnd]:
        """What the end of a step completes: no batch lies in two."""
        for loader in tuple(self._drafts):
            yield from self._finish(loader)

    def _add(self, draft: _Draft, role: int, found: FieldRow) -> None:
        columns, row = found.columns, found.row
        if role <= _Role.IDS:
            draft.trained |= not columns.flags[row] & _CONTEXT
            draft.microbatch = int(columns.microbatch[row])
        if role == _Role.FIELD:
            draft.rows.append(found)
        elif role == _Role.IDS:
            draft.sampler = self._trace.scalar(columns, row)
        elif role == _Role.LISTING:
            draft.listing = self._trace.scalar(columns, row)
        else:
            value = self._scalar(columns, row)
            number = value if type(value) is int and 0 <= value < LARGEST else None
            if role == _Role.EPOCH:
                draft.epoch = number
            elif role == _Role.WORKER:
                draft.worker = number
            else:
                draft.length = number
        draft.last = role

    def _scalar(self, columns: Columns, row: int) -> Any:
        # Epochs, workers and lengths repeat from batch to batch.
        key = columns.digest[row].tobytes()
        if key not in self._small:
            if len(self._small) >= _KEPT_SCALARS:
                self._small.clear()
            self._small[key] = self._trace.scalar(columns, row)
        return self._small[key]

    def _finish(self, loader: str) -> Iterator[SeenBatch]:
        draft = self._drafts.pop(loader, None)
        if draft is None or (draft.sampler is _UNSET and not draft.rows):
            return
        asked = self._asked(draft)
        ids, unknown, from_sampler = asked, "", True
        if self._id != "sampler":
            try:
                ids = self._fields.ids(draft.rows, asked)
            except UnknownIds as reason:
                ids, unknown = None, str(reason)
            from_sampler = ids is not None and asked is not None and np.array_equal(ids, asked)
        elif ids is None:
            unknown = self._fields.unknown_sampler()
        listing = draft.listing if isinstance(draft.listing, list) else None
        yield SeenBatch(
            loader=draft.loader,
            epoch=draft.epoch,
            trained=draft.trained,
            worker=draft.worker,
            ids=ids,
            unknown=unknown,
            from_sampler=from_sampler,
            dataset_length=draft.length,
            listing=self._ids.numbers(listing) if listing else None,
            microbatch=draft.microbatch,
        )

    def _asked(self, draft: _Draft) -> Numbers | None:
        return self._ids.numbers(draft.sampler) if isinstance(draft.sampler, list) else None
