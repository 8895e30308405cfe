"""Measuring noise: how far runs that should be equal differ at each site."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceparity.differ.beginning import Beginning
from traceparity.differ.candidates import candidates
from traceparity.differ.metrics import measure
from traceparity.differ.observation import Observation
from traceparity.differ.policy import Policy
from traceparity.differ.sites import JointSites
from traceparity.differ.sketch_distance import ROUNDING, UPPER
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.step_view import Steps
from traceparity.differ.steps import align_steps
from traceparity.differ.types import TypeTable

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


def measured_noise(reference: Path, repeats: Sequence[Path]) -> dict[int, dict[str, float]]:
    """The largest relative L2 distance of each site over all steps and repetitions, by rank.

    Sites that never differ have none. Where sketches alone were kept, the distance is what it is
    at most. What has no distance, as whole numbers, shapes that differ or infinities, is no
    noise.

    Raises:
        TraceError: A trace cannot be used.
        AlignmentError: No step of a repetition answers one of the reference.
    """
    from traceparity.tracefmt.reader import open_run

    noise: dict[int, dict[str, float]] = {}
    with contextlib.ExitStack() as stack:
        ours = open_run(reference)
        for trace in ours.values():
            stack.enter_context(trace)
        noise = {rank: {} for rank in ours}
        for repeat in repeats:
            for rank, trace in open_run(repeat).items():
                stack.enter_context(trace)
                if rank in ours:
                    _take(noise[rank], ours[rank], trace)
    return noise


def _take(noise: dict[str, float], reference: "Trace", target: "Trace") -> None:
    for site, distance in _distances(reference, target):
        noise[site] = max(distance, noise.get(site, 0.0))


def _distances(reference: "Trace", target: "Trace") -> Iterator[tuple[str, float]]:
    policy = Policy()
    sites = JointSites(reference.sites, target.sites, policy)
    ours = Side(Steps(reference, sites, sites.reference, policy))
    theirs = Side(Steps(target, sites, sites.target, policy))
    types = TypeTable(reference, target)
    for number, other in align_steps(ours, theirs, Beginning(0, "declared")).pairs:
        digests = ours.steps.entries[number].phase_digests
        if digests == theirs.steps.entries[other].phase_digests:
            continue
        pair = StepPair(0, policy, sites, ours, theirs, number, other, types, False)
        for block in pair.blocks:
            for candidate in candidates(pair, block).found:
                distance = _distance(*candidate.observations(pair))
                if distance is not None and math.isfinite(distance):
                    yield str(sites.sites[candidate.site]), distance


def _distance(reference: Observation | None, target: Observation | None) -> float | None:
    """At most how far apart both are, relative to the reference; None where that says nothing."""
    if reference is None or target is None:
        return None
    if not reference.is_tensor and isinstance(reference.plain, float):
        return measure(reference, target).max_rel
    found = measure(reference, target)
    if found.rel_l2 is None or not found.estimated:
        return found.rel_l2
    norms = (reference.norm + target.norm) / reference.norm
    return UPPER * found.rel_l2 + ROUNDING * norms
