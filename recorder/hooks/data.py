"""Data: what loaders deliver, with sample IDs from the sampler. Nothing is drawn or iterated."""

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    dataloader,
    get_worker_info,
)
from torch.utils.data.dataloader import _InfiniteConstantSampler

from traceparity.recorder.batches import Batch, Waiting, summarise
from traceparity.recorder.location import user_frames
from traceparity.recorder.patches import Patches, leave_no_frame
from traceparity.recorder.recording import Recording
from traceparity.tracefmt.rows import Rows

_Fact = TypeVar("_Fact")
_STACK = 8
"""Frames that tell one loader of a program from another."""
MAX_DATASET_IDS = 1 << 19
"""IDs of a dataset's samples up to which they are recorded."""


class _Pass:
    """One pass over a loader: which indices went out, which batch came back."""

    __slots__ = (
        "delivered", "ended", "epoch", "identity", "loader", "sent", "sent_count", "worker",
    )  # fmt: skip

    def __init__(self, identity: int) -> None:
        self.identity = identity
        self.loader: object = None
        self.epoch = 0
        self.sent: dict[int, Any] = {}
        self.sent_count = 0
        self.delivered = 0
        self.ended = False
        self.worker: int | None = None


class DataHooks:
    """Sees the iterators of ``torch.utils.data.DataLoader``."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._waiting = Waiting(recording)
        self._passes: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()
        self._made_at: weakref.WeakKeyDictionary[Any, object] = weakref.WeakKeyDictionary()
        self._older = itertools.count()
        self._epochs: dict[object, int] = {}
        self._listed: dict[object, weakref.ref[Any]] = {}
        self._count = 0

    def install(self, patches: Patches) -> None:
        """Begin to see loaders."""
        iterator = dataloader._BaseDataLoaderIter
        patches.after(DataLoader, "__init__", self._constructed)
        patches.after(DataLoader, "__iter__", self._pass_begins)
        patches.after(iterator, "_next_index", self._index_sent)
        patches.after(iterator, "_reset", self._reset)
        patches.before(dataloader._MultiProcessingDataLoaderIter, "_process_data", self._arrived)
        patches.replace(iterator, "__next__", self._patched_next)

    # -- loaders and passes -------------------------------------------------------------------

    def _constructed(self, result: Any, args: Any, kwargs: Any) -> None:
        # Where the program made it names a loader in every run, also if it is made anew each epoch.
        self._made_at[args[0]] = tuple(user_frames(_STACK))

    def _pass_begins(self, iterator: Any, args: Any, kwargs: Any) -> None:
        found = self._pass(iterator)
        if found is not None:
            # One that is older than the recording is known by the order of first use.
            found.loader = self._made_at.setdefault(args[0], next(self._older))
            found.epoch = self._epochs.get(found.loader, 0)
            self._epochs[found.loader] = found.epoch + 1

    def _pass(self, iterator: Any) -> _Pass | None:
        if get_worker_info() is not None:
            return None
        found = self._passes.get(iterator)
        if found is None:
            self._count += 1
            found = self._passes[iterator] = _Pass(self._count)
        return found

    def _reset(self, result: Any, args: Any, kwargs: Any) -> None:
        found = self._pass(args[0])
        if found is not None:
            self._count += 1
            found.identity = self._count
            found.sent.clear()
            found.sent_count = found.delivered = 0
            found.ended = False

    def _index_sent(self, indices: Any, args: Any, kwargs: Any) -> None:
        found = self._pass(args[0])
        if found is not None:
            found.sent[found.sent_count] = indices
            found.sent_count += 1

    def _arrived(self, args: Any, kwargs: Any) -> None:
        found = self._pass(args[0])
        if found is not None and len(args) > 2:
            found.worker = args[2]

    # -- batches ------------------------------------------------------------------------------

    def _patched_next(self, original: Any) -> Any:
        delivered = self._recording.guard.hook(self._delivered)
        ended = self._recording.guard.hook(self._ended)

        @functools.wraps(original)
        def patched(iterator: Any) -> Any:
            try:
                data = original(iterator)
            except StopIteration:
                ended(iterator)
                raise
            except BaseException as error:
                leave_no_frame(error)
                raise
            if not torch.compiler.is_compiling():
                delivered(iterator, data)
            return data

        return patched

    def _delivered(self, iterator: Any, data: Any) -> None:
        found = self._pass(iterator)
        if found is None:
            return
        number, found.delivered = found.delivered, found.delivered + 1
        indices = self._delivered_indices(found, iterator)
        dataset = getattr(iterator, "_dataset", None)
        batch = Batch(
            loader=found.loader,
            iteration=found.identity,
            number=number,
            epoch=found.epoch,
            worker=found.worker,
            sample_ids=_asked(sample_ids, indices, dataset),
            dataset_length=_asked(_length, dataset),
            dataset_ids=_asked(self._dataset_ids, found.loader, dataset),
            sampler=None if number else _asked(sampler_facts, iterator),
            leaves=[],
            sample_digests=[],
            fetched=self._waiting.root_calls,
        )
        window = self._recording.window
        wants = self._recording.settings.wants_step
        if wants(window.number) or wants(window.number + 1):
            summarise(batch, data, self._recording.observer)
        self._waiting.add(batch)

    def _ended(self, iterator: Any) -> None:
        found = self._pass(iterator)
        if found is not None and not found.ended:
            found.ended = True
            self._waiting.pass_ended(found.loader, found.epoch, found.delivered)

    def _dataset_ids(self, loader: object, dataset: Any) -> list[int] | None:
        """The IDs of a dataset that is a part of a larger one, the first time that it is seen."""
        if not (hasattr(dataset, "indices") and hasattr(dataset, "dataset")):
            return None
        listed, length = self._listed.get(loader), _length(dataset)
        if (listed is not None and listed() is dataset) or not 0 < (length or 0) <= MAX_DATASET_IDS:
            return None
        ids = sample_ids(range(length or 0), dataset)
        if ids is None or not all(type(each) is int and abs(each) < 1 << 63 for each in ids):
            return None
        with contextlib.suppress(TypeError):
            self._listed[loader] = weakref.ref(dataset)
            return ids
        return None

    def _delivered_indices(self, found: _Pass, iterator: Any) -> Any:
        waiting = getattr(iterator, "_task_info", ())
        gone = [number for number in found.sent if number not in waiting]
        if not gone:
            return None
        indices = found.sent[gone[0] if waiting != () else gone[-1]]
        for number in gone:
            del found.sent[number]
        return indices

    # -- what module and backward hooks need --------------------------------------------------

    def before_training(self, args: Any) -> Rows | None:
        """Before a training call moves the window: rows of a teacher's call on the same batch."""
        return self._waiting.training_begins(args)

    def claim_for_training(self, args: Any) -> None:
        """A root was called for training: its batch belongs to this micro-batch."""
        self._waiting.root_calls += 1
        batch = self._waiting.find(args)
        if batch is not None:
            self._waiting.claim(batch)

    def claim_by_keyword(self, kwargs: Any) -> None:
        """The call ended: its keyword arguments tell the batch if the others did not."""
        if kwargs and not self._waiting.claimed:
            batch = self._waiting.find(kwargs)
            if batch is not None:
                self._waiting.claim(batch)

    def claim_for_evaluation(self, args: Any, rows: Rows) -> None:
        """A root was called for evaluation with these rows to show."""
        self._waiting.root_calls += 1
        self._waiting.hold(self._waiting.find(args), rows)

    def claim_latest(self) -> None:
        """A backward begins: a batch that no call was seen to use belongs to it."""
        self._waiting.claim_latest()

    def finish(self) -> None:
        """The program ends."""
        self._waiting.give_up()


def _asked(fact: Callable[..., _Fact | None], *args: Any) -> _Fact | None:
    """A fact that objects of the program tell; None where they answer by an exception.

    Without the fact the batch is as good; without the batch the one after it would be taken for it.
    """
    try:
        return fact(*args)
    except Exception:  # noqa: BLE001 - a dataset may raise anything where it is not meant to be asked
        return None


def sample_ids(indices: Any, dataset: Any) -> list[Any] | None:
    """Stable IDs from what the sampler asked for, through subsets; None where nobody knows."""
    if indices is None:
        return None
    asked = indices if isinstance(indices, list | tuple | range) else [indices]
    if any(index is None for index in asked):
        return None
    ids = [_plain_id(index) for index in asked]
    while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        try:
            ids = [_plain_id(dataset.indices[index]) for index in ids]
        except (TypeError, IndexError, KeyError):
            return None
        dataset = dataset.dataset
    return None if any(index is None for index in ids) else ids


def sampler_facts(iterator: Any) -> dict[str, Any] | None:
    """What chooses the samples of a pass: its class, and whether it shuffles and puts back."""
    sampler = _innermost(getattr(iterator, "_index_sampler", None))
    if isinstance(sampler, _InfiniteConstantSampler):
        # It belongs to an iterable dataset and chooses nothing.
        return None
    shuffles: Any = getattr(sampler, "shuffle", None)
    if isinstance(sampler, RandomSampler | SequentialSampler):
        shuffles = isinstance(sampler, RandomSampler)
    replaces: Any = getattr(sampler, "replacement", None)
    return {
        "class": type(sampler).__name__,
        "shuffle": shuffles if isinstance(shuffles, bool) else None,
        "replacement": replaces if isinstance(replaces, bool) else None,
    }


def _innermost(sampler: Any) -> Any:
    """The sampler inside all batch samplers: those of frameworks skip, share out or count batches.

    One that makes batches without another, or that nobody could see into, is its own.
    """
    seen = set()
    while isinstance(sampler, BatchSampler) and id(sampler) not in seen:
        seen.add(id(sampler))
        held = (getattr(sampler, name, None) for name in ("batch_sampler", "sampler"))
        sampler = next((each for each in held if each is not None), sampler)
    return sampler


def _plain_id(index: Any) -> Any:
    if hasattr(index, "item") and getattr(index, "ndim", 0) == 0:
        index = index.item()
    if isinstance(index, bool | float):
        return None
    if isinstance(index, int | str):
        return index
    if isinstance(index, tuple | list) and all(isinstance(part, int | str) for part in index):
        return list(index)
    return None


def _length(dataset: Any) -> int | None:
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return None
    try:
        return len(dataset)
    except TypeError:
        return None
