"""Evidence for differences of gradients and updates: clipping, norms, what backward left."""

from collections.abc import Iterator

import numpy as np

from traceparity.differ.candidates import Candidate
from traceparity.differ.compare import compare
from traceparity.differ.likeness import Likeness
from traceparity.differ.metrics import widened
from traceparity.differ.moment import told_now
from traceparity.differ.observation import Observation
from traceparity.differ.result import Evidence
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Phase

_ROUND_OFF = 1e-6
_CLIPPING = ("clip_grad_norm_", "clip_grad_value_")


def backward_gradient(pair: StepPair, component: str) -> Iterator[Evidence]:
    """Whether the gradient was equal when backward left it."""
    left, right = told_now(pair, Phase.BACKWARD, component, "grad")
    number = pair.sites.number(Phase.BACKWARD, component, "grad")
    if left and right and number is not None:
        equal = bool(compare(pair.sites.rule(number), left, right))
        detail = "the gradient was {} when backward left it".format(
            "equal" if equal else "different"
        )
        yield Evidence("backward", equal, detail)


def clipping(pair: StepPair) -> Iterator[Evidence]:
    """The norms and limits that were given to clipping."""
    for component in _CLIPPING:
        for thing_component, field in pair.sites.things:
            if thing_component != component:
                continue
            left, right = told_now(pair, Phase.GRADIENT, component, field)
            shown = [_number(seen) for seen in (left, right)]
            if left or right:
                equal = shown[0] == shown[1]
                detail = f"{component} {field}: {shown[0]}" + (
                    "" if equal else f" against {shown[1]}"
                )
                yield Evidence("clipping", equal, detail)


def clipped_before(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    """Clipping between micro-batches, which changes what the next one adds to."""
    for component in _CLIPPING:
        counts = []
        for view, row in (
            (pair.reference, candidate.reference_row),
            (pair.target, candidate.target_row),
        ):
            calls = {
                int(view.columns.call[found])
                for thing, (name, _) in enumerate(pair.sites.things)
                if name == component
                for found in np.flatnonzero(view.thing == thing).tolist()
                if row is not None and found < row
            }
            counts.append(len(calls))
        if any(counts):
            detail = f"{component} calls before, in this step: {counts[0]} against {counts[1]}"
            yield Evidence("clipping", counts[0] == counts[1], detail)


def _number(seen: Observation | None) -> str:
    if seen is None:
        return "absent"
    if seen.is_tensor:
        array = seen.array()
        return (
            f"{float(widened(array).reshape(())):.6g}"
            if array is not None and array.size == 1
            else "unknown"
        )
    return f"{seen.plain:.6g}" if isinstance(seen.plain, float) else str(seen.plain)


def own_gradient(pair: StepPair, component: str) -> Iterator[Evidence]:
    """The size of a parameter's gradient: an adaptive optimizer makes much out of round-off."""
    left, right = told_now(pair, Phase.GRADIENT, component, "grad")
    if not (left and right and left.is_tensor and right.is_tensor):
        return
    detail = f"its gradient has norm {left.norm:.3g} against {right.norm:.3g}"
    rows = np.flatnonzero((pair.reference.phase == Phase.GRADIENT) & ~pair.reference.context)
    norms = pair.reference.columns.stats[rows, 2]
    if norms.size and max(left.norm, right.norm) < _ROUND_OFF * float(np.nanmax(norms)):
        detail += "; beside the others that is round-off, which the optimizer amplifies"
    found = Likeness()
    site = pair.sites.number(Phase.GRADIENT, component, "grad")
    assert site is not None
    found.take(pair, site, component, left, right)
    yield Evidence("gradient", not (found.apart or found.unknown), detail)


def all_gradients(pair: StepPair) -> Iterator[Evidence]:
    """Whether all gradients that the optimizers received were equal."""
    rows = [_gradients(pair, view) for view in (pair.reference, pair.target)]
    if not all(rows):
        return
    found = Likeness()
    for site in rows[0] | rows[1]:
        left, right = (
            view.observation(places[site]) if site in places else None
            for view, places in zip((pair.reference, pair.target), rows, strict=True)
        )
        found.take(pair, site, pair.sites.sites[site].component, left, right)
    yield from found.evidence("gradients", "gradients")


def _gradients(pair: StepPair, view: StepView) -> dict[int, int]:
    """The last row of each gradient that an optimizer received, by site."""
    rows = np.flatnonzero((view.phase == Phase.GRADIENT) & ~view.context).tolist()
    return {
        int(view.site[row]): row
        for row in rows
        if pair.sites.sites[int(view.site[row])].field == "grad"
    }
