"""One scope of coverage: the samples that all ranks saw in an epoch, or in the whole run."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from traceparity.differ.sample_ids import Numbers, SampleIds
from traceparity.differ.universe import Universe

MOST_VIOLATIONS = 100
"""Violations by position that are told one by one, and as many missing samples; all are counted."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where a sample was seen.

    Attributes:
        rank: By which process.
        position: How many samples that rank saw before it in the scope.
        step: In which step of the trace.
        worker: Which loader worker delivered it; None where none did.
    """

    rank: int
    position: int
    step: int
    worker: int | None


@dataclass(frozen=True, slots=True)
class Violation:
    """A sample that breaks the declared rule.

    Attributes:
        kind: ``duplicate`` (by the same rank), ``overlap`` (by another rank), ``unexpected``,
            ``missing`` or ``padding``.
        sample_id: The sample; None for padding, which is a matter of all.
        loader: Component of the loader.
        epoch: Number of the training pass over the loader; None where the whole run is judged.
        seen: Where it was seen; None where it was not.
        before: For a repeated sample where it was seen first.
        why: For a missing sample why a use of it for training came to nothing; empty where there
            was none.
        surplus: For padding how many surplus samples were seen.
    """

    kind: str
    sample_id: Any
    loader: str
    epoch: int | None
    seen: Sighting | None = None
    before: Sighting | None = None
    surplus: int | None = None
    why: str = ""


@dataclass(slots=True)
class ScopeCounts:
    """What was seen in a scope; ``None`` where it takes a universe and none is known."""

    observations: int = 0
    unique: int = 0
    repeated: int = 0
    duplicates: int = 0
    overlaps: int = 0
    expected: int | None = None
    missing: int | None = None
    unexpected: int | None = None
    padding: int | None = None


class ScopeSamples:
    """The samples of a scope in the order in which they were seen, ranks in turn within a step."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._begins = array("q")
        self._ranks = array("q")
        self._steps = array("q")
        self._workers = array("q")

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, numbers: Numbers, rank: int, step: int, worker: int | None) -> None:
        """Append the samples of a batch."""
        self._begins.append(len(self._numbers))
        self._ranks.append(rank)
        self._steps.append(step)
        self._workers.append(-1 if worker is None else worker)
        self._numbers.frombytes(numbers.tobytes())

    @property
    def numbers(self) -> Numbers:
        """The samples."""
        return np.frombuffer(self._numbers, np.int64)

    @property
    def ranks(self) -> npt.NDArray[np.int32]:
        """The rank that saw each."""
        ranks = np.frombuffer(self._ranks, np.int64).astype(np.int32)
        return np.repeat(ranks, np.diff([*self._begins, len(self)]))

    def sighting(self, at: int, ranks: npt.NDArray[np.int32]) -> Sighting:
        """Where the sample at an index was seen."""
        batch = int(np.searchsorted(np.frombuffer(self._begins, np.int64), at, "right")) - 1
        worker = self._workers[batch]
        return Sighting(
            rank=self._ranks[batch],
            position=int(np.count_nonzero(ranks[:at] == ranks[at])),
            step=self._steps[batch],
            worker=None if worker < 0 else worker,
        )


@dataclass(frozen=True, slots=True)
class Repeats:
    """The observations of samples that were seen before in the scope.

    Attributes:
        at: Index of each such observation.
        first: Index of the first observation of its sample.
        by_same_rank: Whether the same rank had seen it before.
    """

    at: Numbers
    first: Numbers
    by_same_rank: Mask


@dataclass(slots=True)
class JudgedScope:
    """What the rule comes to in one scope.

    Attributes:
        counts: What was seen.
        violations: The first ones: by position, then missing samples in their own order.
        total: All violations.
        lacking: Samples that are missing, and surplus that is, unless what was not seen had them.
    """

    counts: ScopeCounts
    violations: list[Violation] = field(default_factory=list)
    total: int = 0
    lacking: int = 0


class ScopeJudge:
    """Applies a rule to the samples of a scope."""

    def __init__(
        self,
        loader: str,
        epoch: int | None,
        samples: ScopeSamples,
        universe: Universe | None,
        why_missing: Callable[[int], str] = lambda _: "",
    ) -> None:
        self._why_missing = why_missing
        self._loader = loader
        self._epoch = epoch
        self._samples = samples
        self._universe = universe
        self._ranks = samples.ranks
        order = np.argsort(samples.numbers, kind="stable")
        ordered = samples.numbers[order]
        is_first = np.ones(len(ordered), bool)
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        self.unique: Numbers = ordered[is_first]
        self._firsts: Numbers = order[is_first]
        self._repeats = self._found_repeats(order, is_first)
        self._held: Mask = np.ones(len(self.unique), bool)
        if universe is not None:
            self._held = universe.holds(self.unique)
        self.counts = self._counted(is_first)

    def _found_repeats(self, order: Numbers, is_first: Mask) -> Repeats:
        group_of = np.cumsum(is_first, dtype=np.int32) - 1
        sizes = np.bincount(group_of, minlength=0)
        many = (sizes > 1)[group_of]
        at, group = order[many], group_of[many]
        # Within a sample by rank, then by position: the sort is stable.
        by_rank = np.lexsort((self._ranks[at], group))
        grouped, ranked = group[by_rank], self._ranks[at[by_rank]]
        same = np.zeros(len(at), bool)
        same[by_rank[1:]] = (grouped[1:] == grouped[:-1]) & (ranked[1:] == ranked[:-1])
        again = ~is_first[many]
        return Repeats(at[again], self._firsts[group[again]], same[again])

    def _counted(self, is_first: Mask) -> ScopeCounts:
        repeats = self._repeats
        counts = ScopeCounts(
            observations=len(self._samples),
            unique=len(self.unique),
            repeated=len(np.unique(repeats.first)),
            duplicates=int(repeats.by_same_rank.sum()),
            overlaps=int((~repeats.by_same_rank).sum()),
        )
        if self._universe is not None:
            inside = int(self._held.sum())
            held = self._universe.holds(np.sort(self._samples.numbers[repeats.at]))
            counts.expected = len(self._universe)
            counts.missing = len(self._universe) - inside
            counts.unexpected = len(self.unique) - inside
            counts.padding = int(held.sum())
        return counts

    def judge(self, rule: str, padding: int | None, ids: SampleIds, *, whole: bool) -> JudgedScope:
        """The violations of a rule; without the ``whole`` scope nothing is known to be missing."""
        found = JudgedScope(self.counts)
        repeats = np.zeros(len(self._repeats.at), bool)
        if rule == "exactly_once":
            repeats = ~repeats
        elif rule == "no_cross_rank_overlap":
            repeats = self._ranks[self._repeats.at] != self._ranks[self._repeats.first]
        self._by_position(found, ids, repeats, across=rule == "no_cross_rank_overlap")
        if rule != "no_cross_rank_overlap":
            self._missing(found, ids, whole=whole)
        if rule == "expected_padding":
            self._padding(found, padding or 0, whole=whole)
        return found

    def _missing(self, found: JudgedScope, ids: SampleIds, *, whole: bool) -> None:
        count = self.counts.missing or 0
        if not whole:
            found.lacking += count
        elif count and self._universe is not None:
            found.total += count
            seen = self.unique[self._held]
            found.violations += [
                Violation(
                    kind="missing",
                    sample_id=ids.id_of(number),
                    loader=self._loader,
                    epoch=self._epoch,
                    why=self._why_missing(number),
                )
                for number in self._universe.missing(seen, MOST_VIOLATIONS, ids)
            ]

    def _padding(self, found: JudgedScope, declared: int, *, whole: bool) -> None:
        surplus = self.counts.padding
        if surplus is None or surplus == declared:
            return
        if surplus < declared and not whole:
            found.lacking += declared - surplus
            return
        found.total += 1
        found.violations.append(
            Violation("padding", None, self._loader, self._epoch, surplus=surplus)
        )

    def _by_position(
        self, found: JudgedScope, ids: SampleIds, repeats: Mask, *, across: bool
    ) -> None:
        """Add repeated samples that break the rule, and unexpected ones, in order."""
        outside = self._firsts[:0] if across else self._firsts[~self._held]
        at, first = self._repeats.at[repeats], self._repeats.first[repeats]
        same = self._repeats.by_same_rank[repeats]
        found.total += len(outside) + len(at)
        where = np.concatenate([at, outside])
        for number in np.argsort(where, kind="stable")[:MOST_VIOLATIONS].tolist():
            is_repeat = number < len(at)
            kind = "unexpected"
            if is_repeat:
                kind = "duplicate" if same[number] and not across else "overlap"
            index = int(where[number])
            before = self._samples.sighting(int(first[number]), self._ranks) if is_repeat else None
            found.violations.append(
                Violation(
                    kind=kind,
                    sample_id=ids.id_of(int(self._samples.numbers[index])),
                    loader=self._loader,
                    epoch=self._epoch,
                    seen=self._samples.sighting(index, self._ranks),
                    before=before,
                )
            )
