"""Batches: what a loader delivered, and which step it turns out to belong to.

Loaders run ahead of the training: prefetch, fast-forwarding after a resume, evaluation passes. So a
batch waits here until a root module is called with its tensors (or, where the program converted
them, until a backward follows it), and only then is it part of a step.
"""

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
import xxhash

from traceparity.recorder.leaves import leaves, tensors
from traceparity.recorder.observe import Observer, Summary, dense_cpu, storage_of
from traceparity.recorder.recording import UNWANTED, Recording, plain_value
from traceparity.recorder.shards import Unobservable
from traceparity.tracefmt.records import Flag, Kind, Phase
from traceparity.tracefmt.rows import Rows

MAX_WAITING = 4096
"""Batches that may wait; the oldest one gives up first."""
MAX_SAMPLES = 4096
"""Samples of a batch up to which each one gets a digest."""


@dataclass(slots=True)
class Batch:
    """A delivered batch.

    Attributes:
        loader: Identifies the loader: where the program made it.
        iteration: Identifies the pass over the loader.
        number: Position in the pass.
        epoch: How many passes over this loader came before.
        worker: Which worker made it; None without workers.
        sample_ids: What the sampler asked for; None where nobody knows.
        dataset_length: Samples in the dataset; None where unknown.
        dataset_ids: IDs of all samples of the dataset, with the first batch from a part of a
            larger one; None where they need no telling.
        sampler: What chooses the samples, with the first batch of a pass; None with others.
        leaves: Path and summary or plain value of each leaf.
        sample_digests: A digest of each sample's content.
        fetched: How many root calls came before it was fetched.
    """

    loader: object
    iteration: int
    number: int
    epoch: int
    worker: int | None
    sample_ids: list[Any] | None
    dataset_length: int | None
    dataset_ids: list[int] | None
    sampler: dict[str, Any] | None
    leaves: list[tuple[str, Summary | Any]]
    sample_digests: list[int]
    fetched: int
    tensors: list[weakref.ref[torch.Tensor]] = field(default_factory=list)

    @property
    def is_kept(self) -> bool:
        """Whether the program still holds any tensor of it, and may come to it later."""
        return any(ref() is not None for ref in self.tensors)

    def feeds(self, storages: set[int], digests: set[bytes]) -> bool:
        """Whether a call's tensors are this batch's, by memory or by content."""
        for ref in self.tensors:
            tensor = ref()
            if tensor is not None and storage_of(tensor) in storages:
                return True
        return any(isinstance(leaf, Summary) and leaf.digest in digests for _, leaf in self.leaves)


def summarise(batch: Batch, data: Any, observer: Observer) -> None:
    """Fill in what is recorded of a batch's contents."""
    found = []
    for path, leaf in leaves(data, "batch"):
        if not isinstance(leaf, torch.Tensor):
            batch.leaves.append((path, plain_value(leaf)))
            continue
        found.append(leaf)
        batch.tensors.append(weakref.ref(leaf))
        try:
            batch.leaves.append((path, observer.batch_leaf(leaf)))
        except Unobservable:
            continue
    if found:
        batch.sample_digests = sample_digests(found, batch.sample_ids)


def sample_digests(found: list[torch.Tensor], ids: list[Any] | None) -> list[int]:
    """A 64-bit digest of each sample, over the leaves whose first dimension counts samples."""
    sizes = [leaf.shape[0] for leaf in found if leaf.dim()]
    count = len(ids) if ids else (sizes[0] if sizes else 0)
    if not 0 < count <= MAX_SAMPLES:
        return []
    hashers = [xxhash.xxh3_64() for _ in range(count)]
    for leaf in found:
        if not leaf.dim() or leaf.shape[0] != count or leaf.layout is not torch.strided:
            continue
        row = leaf.numel() // count * leaf.element_size()
        if row:
            memory = _bytes_of(dense_cpu(leaf))
            for index, hasher in enumerate(hashers):
                hasher.update(memory[index * row : (index + 1) * row])
    return [hasher.intdigest() for hasher in hashers]


def _bytes_of(dense: torch.Tensor) -> Any:
    return memoryview(dense.view(-1).view(torch.uint8).numpy().data)


class Waiting:
    """The batches that were not used yet, and an evaluation call that may be a teacher's."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._batches: list[Batch] = []
        self._held: tuple[Batch, Rows] | None = None
        self._loaders: dict[object, int] = {}
        self._ended: list[tuple[object, dict[str, int]]] = []
        self._claimed_in: tuple[int, int] | None = None
        self.root_calls = 0

    def add(self, batch: Batch) -> None:
        """A loader has delivered a batch."""
        self._batches.append(batch)
        if len(self._batches) > MAX_WAITING:
            self._emit(self._batches.pop(0), Flag.CONTEXT)

    def find(self, args: Any) -> Batch | None:
        """The waiting batch whose tensors a call was given."""
        if not self._batches:
            return None
        found = tensors(args)
        storages = {storage_of(tensor) for tensor in found} - {0}
        for batch in reversed(self._batches):
            if batch.feeds(storages, set()):
                return batch
        digests = self._digests(found)
        return next(
            (batch for batch in reversed(self._batches) if batch.feeds(set(), digests)), None
        )

    def _digests(self, found: list[torch.Tensor]) -> set[bytes]:
        digests = set()
        for tensor in found:
            if tensor.numel() > 1:
                try:
                    digests.add(self._recording.observer.summary(tensor).digest)
                except Unobservable:
                    continue
        return digests

    def claim(self, batch: Batch) -> None:
        """A batch belongs to the current micro-batch.

        Those before it in its pass were skipped, unless the program has kept them, as where it
        collects a pass and trains on it in another order.
        """
        self._loaders.setdefault(batch.loader, len(self._loaders))
        skipped = [
            other
            for other in self._batches
            if other.iteration == batch.iteration
            and other.number < batch.number
            and not other.is_kept
        ]
        gone = {id(other) for other in (*skipped, batch)}
        self._batches = [other for other in self._batches if id(other) not in gone]
        # The claimed one first: the calls of its sites are counted from 0 in every run.
        self._emit(batch, 0)
        for other in skipped:
            self._emit(other, Flag.CONTEXT)
        self._tell_ends()
        window = self._recording.window
        self._claimed_in = (window.number, window.microbatch)

    def pass_ended(self, loader: object, epoch: int, batches: int) -> None:
        """A pass over a loader has delivered all that it had."""
        self._ended.append((loader, {"epoch": epoch, "batches": batches}))
        self._tell_ends()

    def _tell_ends(self) -> None:
        # What a loader is called is known once a batch of it was trained on.
        waiting = []
        for loader, end in self._ended:
            number = self._loaders.get(loader)
            if number is None:
                waiting.append((loader, end))
            elif not self._recording.idle:
                component = f"loader[{number}]"
                self._recording.plain(Phase.DATA, component, "pass_end", end, Flag.CONTEXT)
        self._ended = waiting[-MAX_WAITING:]

    @property
    def claimed(self) -> bool:
        """Whether this micro-batch has a batch."""
        window = self._recording.window
        return self._claimed_in == (window.number, window.microbatch)

    def claim_latest(self) -> None:
        """Without a claim in this micro-batch: take the last batch fetched since the last call."""
        if not self._batches or self.claimed:
            return
        newest: dict[object, Batch] = {}
        last = self._batches[-1].fetched
        for batch in self._batches:
            if batch.fetched == last:
                newest[batch.loader] = batch
        for batch in newest.values():
            self.claim(batch)

    def hold(self, batch: Batch | None, rows: Rows) -> None:
        """An evaluation call ended: it was a teacher's if its batch is trained on next."""
        self.release()
        if batch is None:
            self._recording.rows.extend(rows)
        else:
            self._held = (batch, rows)

    def release(self) -> None:
        """The held call was evaluation after all."""
        if self._held is not None:
            self._recording.rows.extend(self._held[1])
            self._held = None

    def training_begins(self, args: Any) -> Rows | None:
        """Before a window moves on: the held call's rows, if this training call has its batch."""
        if self._held is None:
            return None
        batch, rows = self._held
        storages = {storage_of(tensor) for tensor in tensors(args)} - {0}
        if batch.feeds(storages, set()):
            self._held = None
            return rows
        self.release()
        return None

    def give_up(self) -> None:
        """The program ends: whatever still waits was fetched and never used."""
        self.release()
        for batch in self._batches:
            self._emit(batch, Flag.CONTEXT)
        self._batches.clear()

    def _emit(self, batch: Batch, flags: int) -> None:
        recording = self._recording
        if recording.idle:
            return
        number = self._loaders.get(batch.loader)
        component = "loader" if number is None else f"loader[{number}]"
        for path, leaf in batch.leaves:
            if isinstance(leaf, Summary):
                site = recording.site(Phase.DATA, component, path)
                if site != UNWANTED:
                    recording.summary(Phase.DATA, site, leaf, flags)
            else:
                recording.plain(Phase.DATA, component, path, leaf, flags)
        ids = Kind.SAMPLE_IDS
        recording.plain(Phase.DATA, component, "sample_ids", batch.sample_ids, flags, ids)
        context = Flag.CONTEXT
        recording.plain(Phase.DATA, component, "sample_digests", batch.sample_digests, context, ids)
        for name in ("epoch", "number", "worker", "dataset_length"):
            field_name = "index" if name == "number" else name
            recording.plain(Phase.DATA, component, field_name, getattr(batch, name), context)
        if batch.dataset_ids is not None:
            recording.plain(Phase.DATA, component, "dataset_ids", batch.dataset_ids, context, ids)
        if batch.sampler is not None:
            recording.plain(Phase.DATA, component, "sampler", batch.sampler, context)
