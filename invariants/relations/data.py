"""D, the data law: batches that differ, samples that come once, orders that are new each epoch."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.tables import Batch
from traceparity.invariants.template import Event, Template
from traceparity.tracefmt.records import Phase

_DATA = (Phase.DATA,)

REPEATED = Template(
    id="data.repeated",
    phase=Phase.DATA,
    noun="inputs of the model",
    says={False: "differ from those of the pass before", True: "are those of the pass before"},
    needs=(Phase.FORWARD,),
    hint="a batch that is fetched once and used again",
    shows="input",
)
ORDERED = Template(
    id="data.ordered",
    phase=Phase.DATA,
    noun="epochs so far",
    says={
        False: "have an order other than that of the dataset",
        True: "have the order of the dataset",
    },
    needs=_DATA,
    hint="shuffle=, the sampler, and what replaced them",
    shows="sample_ids",
)
AGAIN = Template(
    id="data.again",
    phase=Phase.DATA,
    noun="batches",
    says={
        False: "hold samples that are new in their epoch",
        True: "hold samples that the epoch has seen already",
    },
    needs=_DATA,
    hint="the sampler, at restarts within an epoch, and at overlapping subsets",
    shows="sample_ids",
)
TWINS = Template(
    id="data.twins",
    phase=Phase.DATA,
    noun="batches",
    says={
        False: "hold no copy of another sample of their epoch",
        True: "hold copies of other samples of their epoch",
    },
    needs=_DATA,
    hint="different samples have equal contents: look at the random seeds of the workers",
    shows="sample_digests",
)
SHORT = Template(
    id="data.short",
    phase=Phase.DATA,
    noun="batches before the last one of an epoch",
    says={False: "are as large as the first one", True: "are smaller than the first one"},
    proposed=(False,),
    needs=_DATA,
    hint="drop_last and at what filters samples",
    shows="size",
)
NEW_ORDER = Template(
    id="data.new_order",
    phase=Phase.DATA,
    noun="epochs so far",
    says={
        True: "have another order than the one before",
        False: "have the order of the one before",
    },
    support=1,
    needs=_DATA,
    hint="sampler.set_epoch(), and at the generator that shuffles",
    shows="sample_ids",
)
DISJOINT = Template(
    id="data.disjoint",
    phase=Phase.DATA,
    noun="samples of an epoch, but for its end",
    says={True: "come to one rank only", False: "come to several ranks"},
    proposed=(True,),
    needs=_DATA,
    hint="the distributed sampler, its rank and its number of replicas",
    shows="sample_ids",
)
WHOLE = Template(
    id="data.whole",
    phase=Phase.DATA,
    noun="epochs",
    says={
        True: "hold the samples of the dataset, or all but a part of a batch",
        False: "leave out a batch or more",
    },
    fields=("ranks",),
    scope=("ranks",),
    support=1,
    needs=_DATA,
    hint="drop_last, the sampler and its length",
    shows="sample_ids",
)

_MOST_IDS = 1 << 20
"""Samples of an epoch that are remembered; of a longer epoch nothing is said."""
_FEWEST_ORDERS = 40_000
"""So many orders must a part of an epoch have, that one of them is no chance."""


class _Epoch:
    """The pass over a loader that is going on."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.ids: dict[Any, None] = {}
        self.digests: set[Any] = set()
        self.before: tuple[Any, ...] = ()
        self.begun = False
        self.same_order = False
        self.in_order = True
        self.length: int | None = None
        self.size = 0
        self.complete = False

    def begin(self, number: int | None, *, at_start: bool) -> None:
        self.before = tuple(self.ids) if self.complete else ()
        self.number, self.complete, self.begun = number, at_start, True
        self.ids, self.digests, self.in_order = {}, set(), True
        self.same_order = bool(self.before) and at_start

    def tells(self, seen: int) -> bool:
        """Whether the order of so many samples of the epoch is no chance."""
        length = self.length or seen
        return seen <= length and math.perm(length, min(seen, 8)) >= _FEWEST_ORDERS

    def take(self, ids: tuple[Any, ...]) -> None:
        """Add the samples of a batch, which are new."""
        seen = len(self.ids)
        self.same_order &= self.before[seen : seen + len(ids)] == ids
        self.ids.update(dict.fromkeys(ids))


class Observer:
    """What a process is trained on."""

    def __init__(self) -> None:
        self._last: bytes | None = None
        self._size: dict[str, int] = {}
        self._epochs: dict[str, _Epoch] = {}

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        if facts.gap:
            self._last = None
            self._epochs.clear()
        yield from self._inputs(facts)
        ended = {loader for loader, _ in facts.pass_ends}
        batches = [batch for batch in facts.batches if batch.trained]
        for number, batch in enumerate(batches):
            last = batch.loader in ended and number == len(batches) - 1
            yield from self._batch(batch, facts.source.header.world_size, last=last)
        for loader, number in facts.pass_ends:
            epoch = self._epochs.get(loader)
            if epoch is not None and epoch.number == number and epoch.complete:
                yield from _epoch_ends(facts, loader, epoch)

    def _inputs(self, facts: StepFacts) -> Iterator[Event]:
        """What the model is given in each pass, which may come from no loader."""
        rows = facts.trained(facts.rows(Role.INPUT))
        root = facts.names.module("")
        if root is None or not len(rows):
            return
        rows = rows[facts.subject(rows) == root]
        batches = facts.columns.microbatch[rows]
        for batch in dict.fromkeys(batches.tolist()):
            given = rows[batches == batch]
            content = facts.columns.digest[given].tobytes()
            if self._last is not None:
                again = content == self._last
                source = _loader(facts, batch) if again else ""
                yield Event(REPEATED, (), again, component=source, row=int(given[0]))
            self._last = content

    def _batch(self, batch: Batch, world: int, *, last: bool) -> Iterator[Event]:
        name, row = batch.loader, batch.row
        if batch.size is not None and not last:
            size = self._size.setdefault(name, batch.size)
            seen = f"{batch.size} samples, {size} at first"
            yield Event(SHORT, (), batch.size < size, component=name, row=row, seen=seen)
        if batch.ids:
            yield from self._ids(batch, world)

    def _ids(self, batch: Batch, world: int) -> Iterator[Event]:
        ids, name, row = batch.ids or (), batch.loader, batch.row
        epoch = self._epochs.setdefault(name, _Epoch())
        if epoch.number != batch.epoch or not epoch.begun:
            epoch.begin(batch.epoch, at_start=batch.index == 0)
        epoch.length, epoch.size = batch.dataset_length, max(epoch.size, len(ids))
        last = next(reversed(epoch.ids)) if epoch.ids else None
        epoch.in_order &= _in_order(ids if last is None else (last, *ids), world)
        if epoch.tells(len(epoch.ids) + len(ids)):
            seen = f"samples {', '.join(map(str, ids[:6]))}, ..."
            yield Event(ORDERED, (), epoch.in_order, component=name, row=row, seen=seen)
        if len(epoch.ids) + len(ids) > _MOST_IDS:
            epoch.complete = False
            return
        again = [each for each in ids if each in epoch.ids]
        repeats = bool(again) or len(set(ids)) < len(ids)
        seen = f"sample {again[0]} again" if again else ""
        yield Event(AGAIN, (), repeats, component=name, row=row, seen=seen)
        if not repeats and len(batch.sample_digests) == len(ids):
            digests = set(batch.sample_digests)
            twins = len(digests) < len(ids) or not epoch.digests.isdisjoint(digests)
            epoch.digests |= digests
            yield Event(TWINS, (), twins, component=name, row=row)
        if repeats:
            epoch.complete = epoch.same_order = False
        epoch.take(ids)
        if epoch.before and epoch.tells(len(epoch.ids)):
            yield Event(NEW_ORDER, (), not epoch.same_order, component=name, row=row)


class RankObserver:
    """What several processes are trained on."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int | None], dict[Any, int]] = {}

    def step(self, ranks: Sequence[StepFacts]) -> Iterator[Event]:
        """The events of a step of all processes."""
        for facts in ranks:
            # A sampler fills the end of an epoch up, for all ranks to have as many samples.
            ended = bool(facts.pass_ends)
            for batch in facts.batches:
                if batch.trained and batch.ids and not ended:
                    yield self._batch(facts, batch)

    def _batch(self, facts: StepFacts, batch: Batch) -> Event:
        key = batch.loader, batch.epoch
        if key not in self._seen:
            # The epoch before is over on all ranks but for a few steps.
            for old in list(self._seen)[:-1]:
                del self._seen[old]
        owners = self._seen.setdefault(key, {})
        ids = batch.ids or ()
        shared = [each for each in ids if owners.get(each, facts.rank) != facts.rank]
        if len(owners) < _MOST_IDS:
            owners.update((each, facts.rank) for each in ids if each not in owners)
        seen = f"sample {shared[0]} came to rank {owners[shared[0]]} too" if shared else ""
        return Event(DISJOINT, (), not shared, component=batch.loader, row=batch.row, seen=seen)


def _loader(facts: StepFacts, batch: int) -> str:
    """The loader whose batch a pass trained on; empty, as the root is, where it is unknown."""
    used = (each.loader for each in facts.batches if each.trained and each.microbatch == batch)
    return next(used, "")


def _in_order(ids: Sequence[Any], world: int) -> bool:
    if not all(type(each) is int for each in ids):
        return False
    return {right - left for left, right in pairwise(ids)} <= {1, world}


def _epoch_ends(facts: StepFacts, loader: str, epoch: _Epoch) -> Iterator[Event]:
    if epoch.length is not None and epoch.ids:
        world = "several" if facts.source.header.world_size > 1 else "one"
        seen = f"{len(epoch.ids)} of {epoch.length} samples"
        whole = len(epoch.ids) > epoch.length - max(epoch.size, 1)
        yield Event(WHOLE, (world,), whole, component=loader, seen=seen)


TEMPLATES = (REPEATED, ORDERED, AGAIN, TWINS, SHORT, NEW_ORDER, DISJOINT, WHOLE)
