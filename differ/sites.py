"""The joint table: one number for a site of both traces, whatever their own ids are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceparity.differ.errors import PolicyError
from traceparity.differ.names import is_generator
from traceparity.differ.policy import NOT_MEASURED, Policy, Rule
from traceparity.differ.rename import Renames
from traceparity.tracefmt.globs import glob_matches
from traceparity.tracefmt.records import Phase, Site, SiteEntry

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SideTable:
    """What the ids of one trace mean.

    Attributes:
        joint: Joint number of each site id.
        location: Source line of each joint number that the trace has.
    """

    joint: Ids
    location: dict[int, str]


def _matches_any(glob: str, names: Sequence[str]) -> bool:
    return any(glob_matches(glob, name) for name in names)


class JointSites:
    """All sites of two traces, under the target's names.

    Two sites of different phases with equal component and field are news of one thing that
    stays until it changes, so they share a *thing* number.

    Attributes:
        sites: The site of each joint number.
        thing_of: Thing number of each joint number.
        things: ``(component, field)`` of each thing.
        is_rng: Whether a joint number is the state of a random generator.
        phase_of: Phase of each joint number.
        reference: Meaning of the reference's ids.
        target: Meaning of the target's ids.
    """

    def __init__(
        self,
        reference: Sequence[SiteEntry],
        target: Sequence[SiteEntry],
        policy: Policy,
        noise: Mapping[str, float] | None = None,
    ) -> None:
        """Join the sites of two traces.

        Args:
            reference: Sites of the reference.
            target: Sites of the target.
            policy: The declared relation.
            noise: How far equal runs differ by site, as the reference keeps it; None where that
                was not measured.

        Raises:
            PolicyError: The policy needs that measurement.
        """
        if noise is None and policy.needs_noise:
            raise PolicyError(NOT_MEASURED)
        self._noise = noise or {}
        self.renames = Renames(policy.align.rename)
        self.sites: list[Site] = []
        self.things: list[tuple[str, str]] = []
        self._numbers: dict[Site, int] = {}
        self._things: dict[tuple[str, str], int] = {}
        self._thing_of: list[int] = []
        self._old_names: dict[int, str] = {}
        self._rules: dict[int, Rule] = {}
        self._policy = policy
        self._reference_paths = {entry.site.component for entry in reference}
        self.reference = self._side(reference, renamed=True)
        self.target = self._side(target, renamed=False)
        self.thing_of: Ids = np.array(self._thing_of, np.int64)
        self.is_rng: npt.NDArray[np.bool_] = np.array(
            [is_generator(site.component) for site in self.sites], np.bool_
        )
        self.phase_of: Ids = np.array([site.phase for site in self.sites], np.int64)
        self.ignored: npt.NDArray[np.bool_] = np.array(
            [self.rule(number).ignore for number in range(len(self.sites))]
            if policy.rules
            else [False] * len(self.sites),
            np.bool_,
        )

    @cached_property
    def sketch_limits(self) -> npt.NDArray[np.float64] | None:
        """The limit of each joint number whose rule is a relative distance alone, else NaN."""
        if not self._policy.rules:
            return None
        rules = [self.rule(number) for number in range(len(self.sites))]
        limits = [
            rule.rel_l2 if rule.rel_l2 is not None and not rule.elementwise else np.nan
            for rule in rules
        ]
        found = np.array(limits, np.float64)
        return None if np.isnan(found).all() else found

    def _side(self, entries: Sequence[SiteEntry], *, renamed: bool) -> SideTable:
        joint, location = np.empty(len(entries), np.int64), {}
        for index, entry in enumerate(entries):
            site = self._renamed(entry.site) if renamed and self.renames else entry.site
            number = self._number(site)
            joint[index] = number
            location[number] = entry.location
            if site is not entry.site:
                self._old_names[number] = str(entry.site)
        return SideTable(joint, location)

    def _renamed(self, site: Site) -> Site:
        component = self.renames.path(site.component)
        field = self.renames.field(site.component, site.field)
        if (component, field) == (site.component, site.field):
            return site
        return Site(site.phase, component, field)

    def _number(self, site: Site) -> int:
        number = self._numbers.get(site)
        if number is None:
            number = self._numbers[site] = len(self.sites)
            self.sites.append(site)
            thing = (site.component, site.field)
            if thing not in self._things:
                self._things[thing] = len(self.things)
                self.things.append(thing)
            self._thing_of.append(self._things[thing])
        return number

    def rule(self, number: int) -> Rule:
        """The comparison rule of a joint number, by its target and its reference name."""
        found = self._rules.get(number)
        if found is None:
            names = [str(self.sites[number])]
            if number in self._old_names:
                names.append(self._old_names[number])
            found = self._policy.rule_for(names)
            if found.noise is not None:
                # Where equal runs never differ, nothing may.
                noise = self._noise.get(names[-1], 0.0) * found.noise
                found = replace(found, noise=None, rel_l2=noise or None)
            self._rules[number] = found
        return found

    def unused(self) -> list[str]:
        """What the policy declares for sites or names that neither trace has, in its own words."""
        names = [str(site) for site in self.sites] + list(self._old_names.values())
        globs = dict.fromkeys(rule.site for rule in self._policy.rules)
        found = [f"site {glob}" for glob in globs if not _matches_any(glob, names)]
        return found + [f"rename {old}" for old in self.renames.unused(self._reference_paths)]

    def reference_name(self, number: int) -> str:
        """The site's name in the reference, where a rename changed it; else empty."""
        return self._old_names.get(number, "")

    def number(self, phase: Phase, component: str, field: str) -> int | None:
        """The joint number of a site; None where neither trace has it."""
        return self._numbers.get(Site(phase, component, field))

    def thing(self, component: str, field: str) -> int | None:
        """The thing number; None where neither trace has it."""
        return self._things.get((component, field))
