"""Collecting the samples of a run, scope by scope, over all ranks and segments.

A scope is given away as soon as every rank is two training passes further, so that memory is
bounded by a few epochs and not by the run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from traceparity.differ.batch_rows import PassEnd, SeenBatch
from traceparity.differ.coverage_scope import ScopeSamples
from traceparity.differ.loader_passes import LoaderPasses
from traceparity.differ.policy import Coverage
from traceparity.differ.sample_ids import Numbers, SampleIds
from traceparity.differ.step_batches import Events, StepBatches
from traceparity.tracefmt.records import Columns

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

Ranks = Mapping[int, "Trace"]
_BEHIND = 2


@dataclass(slots=True)
class CollectedScope:
    """The samples of an epoch of a loader, or of the run.

    Attributes:
        loader: Component of the loader.
        epoch: Number of the training pass; None for the whole run.
        samples: What was seen.
        unknown: For each reason why samples are unknown the number of batches.
        lengths: What the batches say of the dataset's length.
        listings: Numbers of all samples of the datasets that the batches are from, by digest.
        from_sampler: Whether all samples are what a sampler asked for.
        untrained: Samples that training used and did not train on, with the step and the reason.
        open: Why more of the scope may come after the end of the trace; empty where it is whole.
    """

    loader: str
    epoch: int | None
    samples: ScopeSamples = field(default_factory=ScopeSamples)
    unknown: dict[str, int] = field(default_factory=dict)
    lengths: set[int | None] = field(default_factory=set)
    listings: dict[bytes, Numbers] = field(default_factory=dict)
    from_sampler: bool = True
    untrained: list[tuple[Numbers, int, str]] = field(default_factory=list)
    open: str = ""

    def why_missing(self, number: int) -> str:
        """Where a sample was used for training in vain, and why; empty where it never was."""
        for numbers, step, reason in self.untrained:
            if number in numbers:
                return f"fetched in step {step}, {reason}"
        return ""

    @property
    def name(self) -> str:
        """What to call it in a sentence."""
        of_loader = "" if self.loader == "loader[0]" else f" of {self.loader}"
        return f"the run{of_loader}" if self.epoch is None else f"epoch {self.epoch}{of_loader}"


class SampleCollector:
    """Takes the chunks of a run in order and gives away scopes.

    Attributes:
        doubts: Why something of the run is not in view, whatever the scope.
    """

    def __init__(
        self, coverage: Coverage, ids: SampleIds, give: Callable[[CollectedScope], None]
    ) -> None:
        self.doubts: dict[str, None] = {}
        self._coverage = coverage
        self._ids = ids
        self._give = give
        self._by_epoch = coverage.scope == "epoch"
        self._scopes: dict[tuple[str, int | None], CollectedScope] = {}
        self._given: set[tuple[str, int | None]] = set()
        self._passes: dict[tuple[str, int], LoaderPasses] = {}
        self._rows: dict[int, StepBatches] = {}
        self._ranks: Ranks = {}

    # -- the run ------------------------------------------------------------------------------

    def begin_segment(self, ranks: Ranks) -> None:
        """The run, or its next part, is read from these traces."""
        self._release()
        self._ranks = ranks
        self._rows = {
            rank: StepBatches(trace, self._coverage, self._ids) for rank, trace in ranks.items()
        }
        for passes in self._passes.values():
            passes.begin_segment()

    def take(self, rank: int, step: int, columns: Columns) -> None:
        """The next chunk of a step of a rank."""
        self._rows[rank].take(step, columns)

    def end_step(self, rank: int, step: int) -> None:
        """A step of a rank has no more chunks."""
        self._events(rank, self._rows[rank].end_step(step))

    def finish(self) -> None:
        """The run has no more steps: the remaining scopes are given away."""
        self._release()
        for key in sorted(self._scopes, key=lambda key: (key[1] or 0, key[0])):
            self._finish_scope(key)

    @property
    def has_ids(self) -> bool:
        """Whether the traces have any row that tells samples."""
        return any(rows.has_ids for rows in self._rows.values())

    # -- batches ------------------------------------------------------------------------------

    def _release(self) -> None:
        for rank, rows in self._rows.items():
            self._events(rank, rows.finish())

    def _events(self, rank: int, events: Events) -> None:
        for step, event in events:
            if isinstance(event, PassEnd):
                self._of(event.loader, rank).end(event.epoch)
            elif event.trained:
                self._trained(rank, step, event)
            elif self._coverage.count == "fetched" or event.untrained:
                self._fetched(rank, step, event)

    def _of(self, loader: str, rank: int) -> LoaderPasses:
        return self._passes.setdefault((loader, rank), LoaderPasses())

    def _trained(self, rank: int, step: int, batch: SeenBatch) -> None:
        passes = self._of(batch.loader, rank)
        recorded = self._recorded_epoch(batch)
        if recorded not in passes.number_of:
            # A pass that was left at its last batch has no end; the dataset's size shows it.
            scope = self._scopes.get((batch.loader, passes.current))
            full = scope is not None and len(scope.samples) >= (batch.dataset_length or 1 << 62)
            passes.begin(recorded, after_full=full)
            self._give_away(batch.loader)
            for waiting, waited_step in passes.waiting.pop(recorded, ()):
                self._add(rank, waited_step, waiting, passes.number_of[recorded])
        number = passes.number_of[recorded]
        passes.batches[number] = passes.batches.get(number, 0) + 1
        self._add(rank, step, batch, number)

    def _fetched(self, rank: int, step: int, batch: SeenBatch) -> None:
        passes = self._of(batch.loader, rank)
        recorded = self._recorded_epoch(batch)
        if recorded in passes.number_of:
            self._add(rank, step, batch, passes.number_of[recorded])
        else:
            passes.waiting.setdefault(recorded, []).append((batch, step))

    def _recorded_epoch(self, batch: SeenBatch) -> int:
        if batch.epoch is not None:
            return batch.epoch
        if self._by_epoch:
            self.doubts[
                f"which epoch the batches of {batch.loader} belong to was not recorded; "
                'record it, or judge the whole run with scope = "trace"'
            ] = None
        return 0

    def _add(self, rank: int, step: int, batch: SeenBatch, number: int) -> None:
        key = batch.loader, number if self._by_epoch else None
        if key in self._given:
            self.doubts[f"batches of epoch {number} came after two later epochs"] = None
            return
        scope = self._scopes.get(key)
        if scope is None:
            scope = self._scopes[key] = CollectedScope(*key)
        passes = self._of(batch.loader, rank)
        if batch.listing is not None:
            listing = np.unique(batch.listing)
            passes.listing = xxhash.xxh3_128_digest(listing.tobytes()), listing
        if passes.listing is not None:
            scope.listings.setdefault(*passes.listing)
        scope.lengths.add(None if passes.listing is not None else batch.dataset_length)
        scope.from_sampler &= batch.from_sampler
        if self._coverage.count == "trained" and not batch.trained:
            if batch.ids is not None:
                scope.untrained.append((batch.ids, step, batch.untrained))
        elif batch.ids is None:
            scope.unknown[batch.unknown] = scope.unknown.get(batch.unknown, 0) + 1
        else:
            scope.samples.add(batch.ids, rank, step, batch.worker)

    # -- the end of a scope -------------------------------------------------------------------

    def _give_away(self, loader: str) -> None:
        if not self._by_epoch or self._coverage.count != "trained":
            return
        behind = min(self._of(loader, rank).current for rank in self._ranks) - _BEHIND
        done = [key for key in self._scopes if key[0] == loader and (key[1] or 0) <= behind]
        for key in sorted(done, key=lambda key: key[1] or 0):
            self._finish_scope(key)

    def _finish_scope(self, key: tuple[str, int | None]) -> None:
        scope = self._scopes.pop(key)
        self._given.add(key)
        if scope.epoch is not None:
            scope.open = self._why_open(scope.loader, scope.epoch)
        self._give(scope)

    def _why_open(self, loader: str, epoch: int) -> str:
        for rank, trace in self._ranks.items():
            passes = self._of(loader, rank)
            of_rank = f" on rank {rank}" if len(self._ranks) > 1 else ""
            if passes.current < epoch:
                return f"the run ended before it began{of_rank}"
            if not passes.is_over(epoch):
                batches = passes.batches.get(epoch, 0)
                ended = "run ended" if trace.complete else "recording was cut off"
                return f"the {ended} inside it{of_rank}, after {batches} batches"
        return ""
