"""From a place where two steps differ to a divergence with a kind and a size."""

import math
from typing import Any

import numpy as np

from traceparity.differ.candidates import Candidate
from traceparity.differ.metrics import measure
from traceparity.differ.names import is_flag, is_generator, is_group
from traceparity.differ.observation import Observation
from traceparity.differ.result import Divergence
from traceparity.differ.step_pair import StepPair
from traceparity.tracefmt.records import Kind


def make_divergence(
    pair: StepPair, candidate: Candidate, reference: Observation | None, target: Observation | None
) -> Divergence:
    """The divergence at a candidate that was judged to be one."""
    component, field = pair.sites.things[pair.sites.thing_of[candidate.site]]
    location = pair.reference_side.steps.location(candidate.site)
    target_location = pair.target_side.steps.location(candidate.site)
    return Divergence(
        rank=pair.rank,
        step=pair.reference_step,
        target_step=pair.target_step,
        microbatch=candidate.block.microbatch,
        call=candidate.call,
        phase=candidate.block.phase.label,
        component=component,
        field=field,
        kind="order"
        if _rearranged(pair, candidate)
        else kind_of(component, field, reference, target),
        reference=reference,
        target=target,
        metrics=measure(reference, target),
        location=location or target_location,
        target_location=target_location,
        reference_name=pair.sites.reference_name(candidate.site),
        order=candidate.block.number,
    )


def kind_of(
    component: str, field: str, reference: Observation | None, target: Observation | None
) -> str:
    """The sort of a difference, in the words of the JSON result."""
    if reference is None or (reference.absent_gradient and target and target.is_tensor):
        return "extra"
    if target is None or (target.absent_gradient and reference.is_tensor):
        return "missing"
    if reference.kind == Kind.SAMPLE_IDS or target.kind == Kind.SAMPLE_IDS:
        return "order" if same_samples(reference.plain, target.plain) else "sample_id"
    if reference.is_tensor and target.is_tensor:
        return _tensor_kind(reference, target)
    if is_generator(component):
        return "rng"
    if is_group(component):
        return "hyperparameter"
    if is_flag(field):
        return "flag"
    finite = [_finite(each.plain) for each in (reference, target)]
    return "nonfinite" if finite[0] != finite[1] else "value"


def same_samples(left: Any, right: Any) -> bool:
    """Whether two batches hold the same samples, in whatever order."""
    if not isinstance(left, list) or not isinstance(right, list):
        return False
    return sorted(map(repr, left)) == sorted(map(repr, right))


def _rearranged(pair: StepPair, candidate: Candidate) -> bool:
    """Whether the calls of a site saw the same values on both sides, in another order."""
    if not candidate.block.is_sequence or candidate.structural:
        return False
    digests = []
    for view in (pair.reference, pair.target):
        rows = np.flatnonzero(
            view.judged
            & ~view.stateful
            & (view.site == candidate.site)
            & (view.block == candidate.block.number)
        )
        digests.append(sorted(view.columns.digest[row].tobytes() for row in rows.tolist()))
    return digests[0] == digests[1] and len(digests[0]) > 1


def _tensor_kind(reference: Observation, target: Observation) -> str:
    if reference.dtype != target.dtype:
        return "dtype"
    if reference.shape != target.shape or reference.place != target.place:
        return "shape"
    if bool(reference.nonfinite) != bool(target.nonfinite):
        return "nonfinite"
    if reference.digest == target.digest and reference.device != target.device:
        return "device"
    return "value"


def _finite(plain: object) -> bool:
    return not isinstance(plain, float) or math.isfinite(plain)
