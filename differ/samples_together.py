"""The samples of a step over all ranks of a run, whatever rank had which of them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from traceparity.differ.data_evidence import shown_ids
from traceparity.differ.metrics import Metrics
from traceparity.differ.rank_diff import MOST_DIVERGENCES, RankReport
from traceparity.differ.result import Compared, Divergence, Evidence
from traceparity.differ.step_view import FIRST_BATCH
from traceparity.tracefmt.records import Flag, Phase

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

Run = Mapping[int, "Trace"]
IDS, DIGESTS = "sample_ids", "sample_digests"


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of one rank; None where its samples are not known."""

    rank: int
    ids: list[Any] | None
    digests: list[Any] | None

    @property
    def content(self) -> str:
        return repr((self.ids, self.digests))


@dataclass(slots=True)
class _Samples:
    """The batches that a step of a run had from one loader."""

    batches: list[_Batch] = field(default_factory=list)

    def add(self, batch: _Batch) -> None:
        """Take in a batch, unless another rank trained on the very same one."""
        others = (each for each in self.batches if each.rank != batch.rank)
        if all(each.content != batch.content for each in others):
            self.batches.append(batch)

    def counted(self, name: str) -> Counter[Any] | None:
        """How often each sample was there, by its ID or its digest; None where unknown."""
        lists = [getattr(batch, name) for batch in self.batches]
        if any(each is None for each in lists):
            return None
        return Counter(_key(item) for each in lists for item in each)

    def rank_of(self, items: Counter[Any], name: str) -> int | None:
        """The first rank that had one of the items."""
        for batch in self.batches:
            if any(_key(item) in items for item in getattr(batch, name) or ()):
                return batch.rank
        return None


def _key(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item


def compare_samples(reference: Run, target: Run, offset: int) -> RankReport:
    """Compare, step by step, which samples were trained on by all ranks together.

    Args:
        reference: The traces of the reference by rank.
        target: Those of the target.
        offset: Reference step of the target's step 0.
    """
    report = RankReport(compared=Compared(), declared={Phase.DATA.label})
    numbers = [_numbers(reference), _numbers(target)]
    unknown: dict[str, int] = {}
    have = [False, False]
    for step in sorted(numbers[0] & {number + offset for number in numbers[1]}):
        ours, theirs = _samples(reference, step), _samples(target, step - offset)
        for loader in dict.fromkeys([*ours, *theirs]):
            left, right = (side.get(loader, _Samples()) for side in (ours, theirs))
            have = [have[0] or bool(left.batches), have[1] or bool(right.batches)]
            found = _difference(left, right)
            if found is None:
                unknown.setdefault(loader, step)
                continue
            report.compared.observations += len(left.batches)
            report.phases.add(Phase.DATA.label)
            if found.evidence:
                report.divergences.append(found.divergence(loader, step, step - offset))
        if len(report.divergences) >= MOST_DIVERGENCES:
            break
    if have[0] != have[1]:
        # A program that makes its batches by itself may well have had the same samples.
        report.divergences.clear()
        side = "target" if have[0] else "reference"
        report.abstain.append(
            f"the {side} has no batch of a loader, so samples cannot be counted; leave the phase"
            " data out of the relation"
        )
    report.abstain += [
        f"which samples {loader} gave in step {step} is not known on all ranks, so they cannot be"
        " counted; give samples an ID, or leave the phase data out of the relation"
        for loader, step in unknown.items()
    ]
    return report


def _numbers(run: Run) -> set[int]:
    return {entry.number for trace in run.values() for entry in trace.steps}


def _samples(run: Run, number: int) -> dict[str, _Samples]:
    found: dict[str, _Samples] = {}
    for rank, trace in run.items():
        if any(entry.number == number for entry in trace.steps):
            for loader, batch in _batches(rank, trace, number):
                found.setdefault(loader, _Samples()).add(batch)
    return found


def _batches(rank: int, trace: "Trace", number: int) -> Iterator[tuple[str, _Batch]]:
    """The batches that a rank trained on in a step; the digests of samples follow their IDs."""
    columns, loader, ids = trace.columns(number), "", None
    wanted = np.array(
        [
            each.site.phase == Phase.DATA and each.site.field in (IDS, DIGESTS)
            for each in trace.sites
        ],
        np.bool_,
    )
    for row in np.flatnonzero(wanted[columns.site]).tolist():
        site = trace.sites[columns.site[row]].site
        if site.field == DIGESTS:
            if site.component == loader:
                digests = trace.scalar(columns, row)
                yield loader, _Batch(rank, ids, digests or None)
                loader = ""
            continue
        if loader:
            yield loader, _Batch(rank, ids, None)
        trained_on = not columns.flags[row] & Flag.CONTEXT
        loader, ids = (site.component if trained_on else ""), trace.scalar(columns, row)
    if loader:
        yield loader, _Batch(rank, ids, None)


@dataclass(frozen=True, slots=True)
class _Difference:
    """What differs of the samples of a step; nothing where there is no evidence."""

    rank: int = 0
    field: str = IDS
    evidence: tuple[Evidence, ...] = ()

    def divergence(self, loader: str, step: int, target_step: int) -> Divergence:
        return Divergence(
            rank=self.rank,
            step=step,
            target_step=target_step,
            microbatch=0,
            call=0,
            phase=Phase.DATA.label,
            component=loader,
            field=self.field,
            kind="sample_id" if self.field == IDS else "value",
            reference=None,
            target=None,
            metrics=Metrics(),
            order=FIRST_BATCH,
            evidence=self.evidence,
        )


def _difference(ours: _Samples, theirs: _Samples) -> _Difference | None:
    """What differs of the samples of a step; None where it cannot be known."""
    for name in (IDS_OF_BATCH, DIGESTS_OF_BATCH):
        left, right = ours.counted(name), theirs.counted(name)
        if left is None or right is None:
            continue
        if left == right and name == IDS_OF_BATCH:
            # Equal IDs: their contents are to be equal too, where both are known.
            digests = ours.counted(DIGESTS_OF_BATCH), theirs.counted(DIGESTS_OF_BATCH)
            if None in digests or digests[0] == digests[1]:
                return _Difference()
            continue
        return _told(ours, theirs, left - right, right - left, name)
    return None


IDS_OF_BATCH, DIGESTS_OF_BATCH = "ids", "digests"


def _told(
    ours: _Samples, theirs: _Samples, missing: Counter[Any], extra: Counter[Any], name: str
) -> _Difference:
    if not missing and not extra:
        return _Difference()
    by_id = name == IDS_OF_BATCH
    sentences = []
    for items, where, side in ((missing, "reference", ours), (extra, "target", theirs)):
        listed = shown_ids(_items(items)) if by_id else f"{items.total()} by their contents"
        if items:
            rank = side.rank_of(items, name)
            sentences.append(f"only in the {where}: {listed} (first on rank {rank})")
    rank = theirs.rank_of(extra, name)
    return _Difference(
        rank=rank or 0,
        field=IDS if by_id else DIGESTS,
        evidence=(Evidence("samples", False, "; ".join(sentences)),),
    )


def _items(items: Counter[Any]) -> list[Any]:
    return [list(item) if isinstance(item, tuple) else item for item in items.elements()]
