"""Laws of data within a process: batches differ, epochs are shuffled anew, workers differ."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.tables import Batch
from traceparity.tracefmt.records import Phase

BATCHES_DIFFER = Rule(
    "data",
    "batches-differ",
    "a loader of more than one batch does not give the same batch twice in a row",
    "does the loop make a new iterator for each batch, next(iter(loader))? Do the workers of an"
    " IterableDataset share it out, by get_worker_info()?",
)
ORDER_DIFFERS = Rule(
    "data",
    "order-differs",
    "a loader that shuffles gives each epoch another order",
    "is sampler.set_epoch(epoch) called, and is no seed set again at each epoch?",
)
WORKERS_DIFFER = Rule(
    "data",
    "workers-differ",
    "different samples from different workers have different contents",
    "do workers share a seed? Take random numbers from torch, or seed each one in worker_init_fn",
)
_FEWEST_IDS = 6


@dataclass(slots=True)
class _Pass:
    """One pass over a loader."""

    epoch: int
    first: Finding
    shuffles: bool
    optimizers: tuple[str, ...]
    trained: bool = False
    ids: list[Any] = field(default_factory=list)


class BatchesDiffer:
    """Two batches in a row have the same samples and the same contents."""

    def __init__(self) -> None:
        self._last: dict[str, Batch] = {}
        self._replaces: set[str] = set()

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        for batch in facts.batches:
            if batch.sampler and batch.sampler.get("replacement"):
                self._replaces.add(batch.loader)
            if not batch.trained:
                continue
            last = None if facts.gap else self._last.get(batch.loader)
            self._last[batch.loader] = batch
            if last is not None and batch.loader not in self._replaces and _same(last, batch):
                there = f", of {batch.dataset_length} there are" if batch.dataset_length else ""
                yield facts.finding(
                    BATCHES_DIFFER, Phase.DATA, batch.loader, "batch", "another batch",
                    f"the same {batch.size} samples as before{there}",
                    row=batch.row,
                )  # fmt: skip

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())


def _same(last: Batch, batch: Batch) -> bool:
    if not batch.content or batch.content != last.content or batch.ids != last.ids:
        return False
    if batch.ids is None:
        return _repeated(last, batch)
    if len(set(batch.ids)) < len(batch.ids):
        return False
    # Samples that are all alike make batches that are all alike.
    several = len(batch.ids) == 1 or len(set(batch.sample_digests)) > 1
    return several and (batch.dataset_length or 0) > len(batch.ids)


def _repeated(last: Batch, batch: Batch) -> bool:
    """Whether a stream gave the same batch again in one pass; what it has in all nobody knows."""
    one_pass = batch.epoch is not None and batch.epoch == last.epoch
    next_one = batch.index is not None and last.index is not None and batch.index > last.index
    return one_pass and next_one and len(set(batch.sample_digests)) > 1


class OrderDiffers:
    """Two passes of a loader that shuffles have the same order."""

    def __init__(self) -> None:
        self._now: dict[str, _Pass] = {}
        self._before: dict[str, _Pass] = {}

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        for batch in facts.batches:
            if batch.epoch is None or batch.loader == "loader":
                continue
            now = self._now.get(batch.loader)
            if now is None or now.epoch != batch.epoch:
                yield from self._ended(batch.loader)
                now = self._now[batch.loader] = _Pass(
                    batch.epoch,
                    self._finding(facts, batch),
                    bool(batch.sampler and batch.sampler.get("shuffle")),
                    facts.updated,
                )
            now.trained |= batch.trained
            now.ids += batch.ids or ()

    def _finding(self, facts: StepFacts, batch: Batch) -> Finding:
        return facts.finding(
            ORDER_DIFFERS, Phase.DATA, batch.loader, "sample_ids", "another order",
            "the order of the epoch before, sample for sample", row=batch.row,
        )  # fmt: skip

    def _ended(self, loader: str) -> Iterator[Finding]:
        now = self._now.get(loader)
        # A framework may make the loader of its evaluations where it makes the one it trains on.
        if now is None or not now.trained:
            return
        before = self._before.get(loader)
        shuffle = before is not None and now.shuffles and before.shuffles
        # Another fit of the same program may begin from the same seed.
        one_fit = before is not None and now.optimizers == before.optimizers
        same = before is not None and one_fit and now.ids == before.ids
        if shuffle and same and len(set(now.ids)) >= _FEWEST_IDS:
            yield now.first
        self._before[loader] = now

    def end(self) -> Iterator[Finding]:
        """The last pass ends."""
        for loader in self._now:
            yield from self._ended(loader)


class WorkersDiffer:
    """Two workers made the same contents of different samples."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, dict[tuple[Any, ...], Batch]]] = {}

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        for batch in facts.batches:
            if batch.worker is None or batch.epoch is None or not batch.ids:
                continue
            if len(set(batch.sample_digests)) < max(2, len(batch.ids)):
                continue
            epoch, made = self._made.get(batch.loader, (-1, {}))
            if epoch != batch.epoch:
                self._made[batch.loader] = (batch.epoch, made := {})
            twin = made.setdefault(batch.sample_digests, batch)
            if twin.worker != batch.worker and not set(twin.ids or ()) & set(batch.ids):
                yield facts.finding(
                    WORKERS_DIFFER, Phase.DATA, batch.loader, "batch",
                    f"other contents than those of {_some(twin)}",
                    f"the same, for {_some(batch)}",
                    row=batch.row,
                )  # fmt: skip

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())


def _some(batch: Batch) -> str:
    ids = batch.ids or ()
    more = ", ..." if len(ids) > 4 else ""
    return f"samples {', '.join(map(str, ids[:4]))}{more} from worker {batch.worker}"
