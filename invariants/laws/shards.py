"""The law of shards: processes that train replicas on parts of a dataset see different samples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.laws.replicas import alike_at_start
from traceparity.tracefmt.records import Phase

RANKS_DISJOINT = Rule(
    "data",
    "ranks-disjoint",
    "within an epoch no two processes train on one sample, but for a few that make parts equal",
    "is a DistributedSampler used, with the right rank and number of replicas?",
)


@dataclass(slots=True)
class _Epoch:
    """Who has seen which sample of a pass, and the first one that was seen twice."""

    seen: dict[Any, int] = field(default_factory=dict)
    twice: int = 0
    first: Finding | None = None


class RanksDisjoint:
    """Samples that several processes have trained on in one epoch.

    Attributes:
        why_not: Why there was nothing to compare; empty where there was something.
    """

    def __init__(self) -> None:
        self.why_not = "there is one process only, or the recording knows no sample IDs"
        self._epochs: dict[tuple[str, int], _Epoch] = {}
        self._applies = True
        self._begun = False
        self._told = False

    def step(self, ranks: Sequence[StepFacts]) -> Iterator[Finding]:
        """Judge a step of all processes that have it, by rank."""
        if len(ranks) < 2 or self._told or not self._applies:
            return
        if not self._begun:
            # Without replicas each process may train a model of its own, or a part of one.
            self._begun = True
            alike, self.why_not = alike_at_start(ranks)
            self._applies = bool(alike)
        batches = [batch for facts in ranks for batch in facts.batches]
        if any(batch.sampler and batch.sampler.get("replacement") for batch in batches):
            self._applies = False
        if not self._applies:
            return
        for facts in ranks:
            yield from self._take(facts, len(ranks))

    def _take(self, facts: StepFacts, processes: int) -> Iterator[Finding]:
        for batch in facts.batches:
            if not batch.trained or batch.ids is None or batch.epoch is None:
                continue
            self.why_not = ""
            epoch = self._epochs.setdefault((batch.loader, batch.epoch), _Epoch())
            for sample in batch.ids:
                rank = epoch.seen.setdefault(sample, facts.rank)
                if rank == facts.rank:
                    continue
                epoch.twice += 1
                if epoch.first is None:
                    epoch.first = facts.finding(
                        RANKS_DISJOINT, Phase.DATA, batch.loader, "sample_ids",
                        "samples that no other process trains on in this epoch",
                        f"sample {sample}, which rank {rank} has trained on too", row=batch.row,
                    )  # fmt: skip
            # A sampler of equal parts hands out a few samples twice.
            if epoch.twice >= processes and epoch.first is not None and not self._told:
                self._told = True
                yield epoch.first

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())
