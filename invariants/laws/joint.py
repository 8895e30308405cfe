"""Sites of several processes under joint numbers, so that their rows compare as arrays."""

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.state import Ids
from traceparity.tracefmt.records import Site


class JointSites:
    """Numbers that a site has in the traces of all processes."""

    def __init__(self) -> None:
        self._numbers: dict[Site, int] = {}
        self._of: dict[int, Ids] = {}

    def differ(self, one: StepFacts, other: StepFacts, role: Role) -> bool:
        """Whether two processes say different things at the end of a step at a common site."""
        first, first_digest = self._last(one, role)
        second, second_digest = self._last(other, role)
        _, at, there = np.intersect1d(first, second, assume_unique=True, return_indices=True)
        return not np.array_equal(first_digest[at], second_digest[there])

    def _last(self, facts: StepFacts, role: Role) -> tuple[Ids, Ids]:
        """Joint numbers and digests of the last row of each site of a role."""
        rows = facts.rows(role)[::-1]
        numbers, at = np.unique(self._joint(facts)[facts.columns.site[rows]], return_index=True)
        return numbers, facts.columns.digest[rows[at]].view(np.int64)

    def _joint(self, facts: StepFacts) -> Ids:
        known = self._of.get(facts.rank, np.zeros(0, np.int64))
        sites = facts.source.sites
        if len(known) < len(sites):
            new = [self._number(entry.site) for entry in sites[len(known) :]]
            known = self._of[facts.rank] = np.concatenate([known, np.array(new, np.int64)])
        return known

    def _number(self, site: Site) -> int:
        return self._numbers.setdefault(site, len(self._numbers))
