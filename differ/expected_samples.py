"""Which samples should be seen: as declared, as the dataset has them, or as the reference saw."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from traceparity.differ.policy import Coverage
from traceparity.differ.run_ranks import by_rank
from traceparity.differ.sample_collector import CollectedScope, SampleCollector
from traceparity.differ.sample_ids import Numbers, SampleIds
from traceparity.differ.universe import Universe, span_of
from traceparity.differ.unseen import not_in_view

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

_DECLARE = 'declare them as expected, e.g. expected = "range(0, 50000)"'


class UnknownUniverse(Exception):
    """Nothing tells which samples should be seen; the message says what would."""


class ExpectedSamples:
    """The universe of each scope."""

    def __init__(
        self, coverage: Coverage, ids: SampleIds, reference: Mapping[int, "Trace"] | None
    ) -> None:
        self._coverage = coverage
        self._ids = ids
        self._reference = reference
        self._seen_by_reference: dict[tuple[str, int | None], Numbers | str] | None = None
        self._declared = _declared(coverage, ids)

    def of(self, scope: CollectedScope) -> Universe:
        """The samples that a scope should have.

        Raises:
            UnknownUniverse: Nothing tells.
        """
        if self._declared is not None:
            return self._declared
        try:
            return self._of_dataset(scope)
        except UnknownUniverse:
            if self._reference is None:
                raise
        return self._of_reference(scope)

    def _of_dataset(self, scope: CollectedScope) -> Universe:
        if not scope.from_sampler:
            raise UnknownUniverse(
                f"{self._coverage.id} is not what the sampler asked for; {_DECLARE}"
            )
        sources = len(scope.lengths - {None}) + len(scope.listings)
        if sources > 1:
            raise UnknownUniverse(f"its batches come from different datasets; {_DECLARE}")
        for listing in scope.listings.values():
            return Universe(f"the {len(listing):,} samples of the dataset", listed=listing)
        for length in scope.lengths:
            if length is not None:
                return self._by_length(scope, length)
        raise UnknownUniverse(f"the dataset's length is not recorded; {_DECLARE}")

    def _by_length(self, scope: CollectedScope, length: int) -> Universe:
        seen = scope.samples.numbers
        if len(seen) and (int(seen.min()) < 0 or int(seen.max()) >= length):
            raise UnknownUniverse(
                f"the sampler asked for others than 0 to {length - 1}, which the dataset's length "
                f"suggests; {_DECLARE}"
            )
        return Universe(f"the {length:,} samples of the dataset", span=range(length))

    def _of_reference(self, scope: CollectedScope) -> Universe:
        if self._seen_by_reference is None:
            self._seen_by_reference = self._read_reference()
        found = self._seen_by_reference.get((scope.loader, scope.epoch))
        if found is None:
            raise UnknownUniverse(f"the reference has no {scope.name}; {_DECLARE}")
        if isinstance(found, str):
            raise UnknownUniverse(f"{found}; {_DECLARE}")
        seen = "trained on" if self._coverage.count == "trained" else "fetched"
        told = f"the {len(found):,} samples that the reference {seen} in {scope.name}"
        return Universe(told, listed=found)

    def _read_reference(self) -> dict[tuple[str, int | None], Numbers | str]:
        from traceparity.differ.coverage import steps_with_data

        found: dict[tuple[str, int | None], Numbers | str] = {}
        ranks = by_rank(self._reference or {})
        lacking = [each.reason for each in not_in_view(ranks)]

        def keep(scope: CollectedScope) -> None:
            doubt = next(iter([*lacking, *scope.unknown]), "")
            if not doubt and scope.open:
                doubt = scope.open
            where = f"{scope.name} of the reference is not whole: {doubt}"
            found[scope.loader, scope.epoch] = where if doubt else np.unique(scope.samples.numbers)

        collector = SampleCollector(self._coverage, self._ids, keep)
        collector.begin_segment(ranks)
        for step, rank in steps_with_data(ranks):
            for columns in ranks[rank].parts(step):
                collector.take(rank, step, columns)
            collector.end_step(rank, step)
        collector.finish()
        return found


def _declared(coverage: Coverage, ids: SampleIds) -> Universe | None:
    expected = coverage.expected
    if expected is None:
        return None
    if isinstance(expected, str):
        return Universe(f"{expected}, as declared", span=span_of(expected))
    numbers = ids.numbers(expected)
    if numbers is None:  # a policy file has whole numbers and texts alone
        raise ValueError("the expected samples are no IDs")
    return Universe(f"the {len(numbers):,} declared samples", listed=np.unique(numbers))
