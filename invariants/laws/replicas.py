"""The law of replicas: what all processes hold alike stays alike.

What counts are parameters, optimizer state and rates. Gradients may differ as long as an optimizer
of its own reduces them; where parameters part, they tell where it began.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.laws.joint import JointSites
from traceparity.invariants.roles import Role
from traceparity.tracefmt.records import Flag, Phase

if TYPE_CHECKING:
    from traceparity.invariants.state import Ids

REPLICAS_EQUAL = Rule(
    "equality",
    "replicas-equal",
    "parameters, optimizer states and rates that all processes hold alike stay alike",
    "what does one process do that the other does not: clipping, a wrapper that is bypassed, a "
    "parameter that was replaced after wrapping, a write, a scheduler?",
)
_SHARDED = int(Flag.SHARDED)


class ReplicasEqual:
    """Replicas part, and do not come together again.

    Attributes:
        why_not: Why there was nothing to compare; empty where there was something.
    """

    def __init__(self, *, may_meet_again: bool = True) -> None:
        """Start before the first step.

        Args:
            may_meet_again: Whether replicas may differ for a while, as where parameters are
                averaged every few steps only.
        """
        self.why_not = "there is one process only; give the folder with the trace of each rank"
        self._may_meet_again = may_meet_again
        self._replicated: tuple[str, ...] | None = None
        self._joint = JointSites()
        self._numbers: dict[int, Ids] = {}
        self._ended: dict[int, npt.NDArray[np.uint64]] = {}
        self._parted: Finding | None = None
        self._met_again = False
        self._told = False

    def step(self, ranks: Sequence[StepFacts]) -> Iterator[Finding]:
        """Judge a step of all processes that have it, by rank."""
        if len(ranks) < 2 or self._told:
            return
        if self._replicated is None:
            self._replicated = self._begin(ranks)
        if not self._replicated:
            return
        self.why_not = ""
        if self._parted is not None and self._start_equal(ranks):
            self._parted, self._met_again = None, True
        if self._parted is None and not self._met_again:
            yield from self._compare(ranks)
        for facts in ranks:
            if facts.rank in self._numbers:
                self._ended[facts.rank] = facts.state.digest[self._numbers[facts.rank]]

    def _compare(self, ranks: Sequence[StepFacts]) -> Iterator[Finding]:
        place = self._first_difference(ranks)
        if place is None:
            return
        if self._may_meet_again and place.phase != Phase.SCHEDULER:
            self._parted = place
        else:
            self._told = True
            yield place

    def _start_equal(self, ranks: Sequence[StepFacts]) -> bool:
        """Whether the parameters that a step starts from are equal, as after an average."""
        starts = []
        for facts in ranks:
            if facts.rank in self._ended:
                start, values = self._ended[facts.rank].copy(), facts.values
                told = np.flatnonzero(values.phase == Phase.STATE)
                at = {
                    tensor: place for place, tensor in enumerate(self._numbers[facts.rank].tolist())
                }
                for row in told.tolist():
                    if int(values.tensor[row]) in at:
                        start[at[int(values.tensor[row])]] = values.digest[row]
                starts.append(start)
        return all(np.array_equal(starts[0], other) for other in starts[1:])

    def end(self) -> Iterator[Finding]:
        """Tell of replicas that never came together again."""
        if self._parted is not None:
            yield self._parted

    def _begin(self, ranks: Sequence[StepFacts]) -> tuple[str, ...]:
        """Names of the parameters that all processes begin with alike."""
        alike, self.why_not = alike_at_start(ranks)
        for facts in ranks:
            numbers = [facts.names.tensor(name) for name in alike]
            self._numbers[facts.rank] = np.array(numbers, np.int64)
        return alike

    def _parameters_equal(self, ranks: Sequence[StepFacts]) -> bool:
        known = [facts for facts in ranks if facts.rank in self._numbers]
        digests = [facts.state.digest[self._numbers[facts.rank]] for facts in known]
        return all(np.array_equal(digests[0], other) for other in digests[1:])

    def _first_difference(self, ranks: Sequence[StepFacts]) -> Finding | None:
        """The first row, in the order of a step, that tells of a difference."""
        if self._parameters_equal(ranks) and not self._differ_beside_parameters(ranks):
            return None
        for phase in (Phase.STATE, Phase.GRADIENT, Phase.OPTIMIZER, Phase.SCHEDULER):
            found = self._differs_in(ranks, phase)
            if found is not None:
                return found
        return None

    def _differ_beside_parameters(self, ranks: Sequence[StepFacts]) -> bool:
        """Whether optimizer states or rates differ."""
        first = ranks[0]
        return any(
            facts.rates_used != first.rates_used
            or facts.rates_after != first.rates_after
            or self._joint.differ(first, facts, Role.OPTIMIZER_STATE)
            for facts in ranks[1:]
            if facts.updated == first.updated
        )

    def _differs_in(self, ranks: Sequence[StepFacts], phase: Phase) -> Finding | None:
        first = ranks[0]
        mine = _told(first, phase)
        for facts in ranks[1:]:
            theirs = _told(facts, phase)
            for key, (row, digest) in mine.items():
                if key in theirs and theirs[key][1] != digest:
                    seen = f"another value on rank {facts.rank} than on rank {first.rank}"
                    return _finding(ranks, facts, phase, key, first.location(row), seen)
            if phase in (Phase.STATE, Phase.SCHEDULER) and mine.keys() != theirs.keys():
                key = min(mine.keys() ^ theirs.keys())
                one, told = (first, mine) if key in mine else (facts, theirs)
                seen = f"a change on rank {one.rank}, and none on the others"
                return _finding(ranks, one, phase, key, one.location(told[key][0]), seen)
        return None


def _finding(
    ranks: Sequence[StepFacts],
    facts: StepFacts,
    phase: Phase,
    key: tuple[str, str],
    location: str,
    seen: str,
) -> Finding:
    clipped = [one.rank for one in ranks if one.clips]
    if 0 < len(clipped) < len(ranks):
        seen += f"; gradients were clipped on rank {', '.join(map(str, clipped))} only"
    found = facts.finding(REPLICAS_EQUAL, phase, *key, "the same value on all ranks", seen)
    return replace(found, location=location)


def alike_at_start(ranks: Sequence[StepFacts]) -> tuple[tuple[str, ...], str]:
    """Names of the parameters that processes hold and begin with alike, or why there are none.

    Where only some begin alike, as zeros do, each process trains a model of its own.
    """
    first = ranks[0]
    if any((facts.columns.flags & _SHARDED).any() for facts in ranks):
        return (), "parameters are sharded over the processes"
    held = [tensor for tensor in first.state.group if first.state.is_parameter[tensor]]
    names = tuple(first.names.tensors[tensor] for tensor in held)
    starts = [_starts(facts) for facts in ranks]
    if not names or not all(name in starts[0] and _all_alike(starts, name) for name in names):
        return (), "the processes hold no parameters that begin alike"
    return names, ""


def _starts(facts: StepFacts) -> dict[str, bytes]:
    """The first value of each parameter or buffer."""
    values = facts.values
    return {
        facts.names.tensors[tensor]: digest.tobytes()
        for tensor, digest in zip(
            values.tensor[values.first].tolist(), values.digest[values.first], strict=True
        )
    }


def _all_alike(starts: list[dict[str, bytes]], name: str) -> bool:
    return all(other.get(name) == starts[0][name] for other in starts[1:])


def _told(facts: StepFacts, phase: Phase) -> dict[tuple[str, str], tuple[int, bytes]]:
    """Rows of a phase that are alike on replicas, by component and field: the last of each."""
    told: dict[tuple[str, str], tuple[int, bytes]] = {}
    for role in (Role.VALUE, Role.GRADIENT, Role.HYPERPARAMETER, Role.OPTIMIZER_STATE):
        told.update(_rows(facts, role, phase))
    return told


def _rows(facts: StepFacts, role: Role, phase: Phase) -> dict[tuple[str, str], tuple[int, bytes]]:
    rows = facts.trained(facts.rows(role))
    rows = rows[facts.phase(rows) == phase]
    found = {}
    for row in rows.tolist():
        site = facts.source.sites[facts.columns.site[row]].site
        tensor = facts.names.tensor(site.component) if role == Role.VALUE else None
        if tensor is None or facts.state.is_parameter[tensor]:
            found[site.component, site.field] = (row, facts.columns.digest[row].tobytes())
    return found
