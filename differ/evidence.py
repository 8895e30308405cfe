"""What was equal around the first divergence and what was not: facts, no claim of a cause."""

from collections.abc import Iterator

import numpy as np

from traceparity.differ.candidates import Candidate
from traceparity.differ.moment import agreement, told_now
from traceparity.differ.names import is_group, optimizer_state_parameter, scheduler_of, within
from traceparity.differ.observation import Observation
from traceparity.differ.result import Divergence, Evidence
from traceparity.differ.settings_evidence import settings_evidence
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Phase

_SHOWN = 3
_CLIPPING = ("clip_grad_norm_", "clip_grad_value_")


def evidence_for(
    pair: StepPair, candidate: Candidate, divergence: Divergence
) -> Iterator[Evidence]:
    """The evidence for a divergence, by the phase in which it is."""
    phase = candidate.block.phase
    component = divergence.component
    yield from _before(pair, candidate)
    if candidate.structural:
        yield from _structure(pair, candidate, component)
    if phase == Phase.STATE:
        yield from _state(pair, candidate, divergence)
    if phase in (Phase.FORWARD, Phase.LOSS):
        yield from _inputs(pair, candidate, component)
        yield from _parameters_and_buffers(pair, candidate, component)
        yield from _flags(pair, candidate, component)
        yield from _overwritten(pair, candidate)
    if phase == Phase.BACKWARD:
        yield from _clipped_before(pair, candidate)
    if phase == Phase.GRADIENT:
        yield from _backward(pair, component)
        yield from _clipping(pair)
    if phase in (Phase.OPTIMIZER, Phase.SCHEDULER):
        yield from _gradients(pair)
        yield from _hyperparameters(pair, candidate)
    if phase != Phase.DATA:
        yield from settings_evidence(pair, component)
    if phase in (Phase.FORWARD, Phase.LOSS) or divergence.field.startswith("grad_output"):
        yield from _interval(pair, candidate)
    yield from _rng(pair, candidate)
    yield from _checkpoints(pair)


def _before(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    """The phases of the step that came before: the divergence is the first one, so they agree."""
    blocks = [block for block in pair.blocks if block.number < candidate.block.number]
    names = list(dict.fromkeys(block.phase.label for block in blocks))
    if names:
        detail = f"in step {pair.reference_step} so far: {', '.join(names)}"
        yield Evidence("before", True, detail)


def _structure(pair: StepPair, candidate: Candidate, component: str) -> Iterator[Evidence]:
    """How much of a module is on one side only: one difference, not one for each of its rows."""
    known = [set(view.site.tolist()) for view in (pair.reference, pair.target)]
    own, other = known if candidate.target is None else known[::-1]
    lone = [
        site
        for site in sorted(own - other)
        if within(pair.sites.sites[site].component, component) and component
    ]
    if len(lone) > 1:
        side = "reference" if candidate.target is None else "target"
        detail = f"{len(lone)} sites of {component} are in the {side} only"
        yield Evidence("structure", False, detail)


def _state(pair: StepPair, candidate: Candidate, divergence: Divergence) -> Iterator[Evidence]:
    if divergence.field != "value" or scheduler_of(divergence.component):
        yield from _parameters_and_buffers(pair, candidate, "")
    if not optimizer_state_parameter(divergence.component, divergence.field):
        things = [
            thing
            for thing, name in enumerate(pair.sites.things)
            if optimizer_state_parameter(*name)
        ]
        yield from _agreement(pair, candidate, things, "optimizer_state", "optimizer states")
    if not is_group(divergence.component):
        yield from _hyperparameters(pair, candidate)
    if scheduler_of(divergence.component):
        detail = "a counter of the schedule differs; the effect may show only in later steps"
        yield Evidence("schedule", False, detail)


def _agreement(
    pair: StepPair, candidate: Candidate, things: list[int], what: str, noun: str
) -> Iterator[Evidence]:
    found = agreement(pair, candidate, things)
    if found.different:
        names = [".".join(filter(None, pair.sites.things[thing])) for thing in found.different]
        names = [name.removesuffix(".value") for name in names]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield Evidence(what, False, f"{noun} differ: {', '.join(names[:_SHOWN])}{more}")
    elif found.equal:
        yield Evidence(what, True, f"{noun} equal ({len(found.equal)} compared)")


def _parameters_and_buffers(
    pair: StepPair, candidate: Candidate, component: str
) -> Iterator[Evidence]:
    things = pair.sites.things
    trained = {name for name, field in things if field == "requires_grad"}
    own = pair.sites.thing_of[candidate.site]
    parameters: list[int] = []
    buffers: list[int] = []
    for thing, (name, field) in enumerate(things):
        if field == "value" and within(name, component) and not scheduler_of(name) and thing != own:
            (parameters if name in trained else buffers).append(thing)
    yield from _agreement(pair, candidate, parameters, "parameters", "parameters")
    yield from _agreement(pair, candidate, buffers, "buffers", "buffers")


def _flags(pair: StepPair, candidate: Candidate, component: str) -> Iterator[Evidence]:
    thing = pair.sites.thing(component, "training")
    if thing is not None and agreement(pair, candidate, [thing]).different:
        yield Evidence("flags", False, f"the training flag of {component or 'the model'} differs")


def _inputs(pair: StepPair, candidate: Candidate, component: str) -> Iterator[Evidence]:
    seen = [_inputs_of(view, pair, candidate, component) for view in (pair.reference, pair.target)]
    if not seen[0] and not seen[1]:
        return
    differing = [name for name in seen[0] if seen[0][name] != seen[1].get(name)]
    differing += [name for name in seen[1] if name not in seen[0]]
    if differing:
        yield Evidence("inputs", False, f"inputs differ: {', '.join(differing[:_SHOWN])}")
    else:
        yield Evidence("inputs", True, f"inputs equal ({len(seen[0])} compared)")


def _inputs_of(
    view: StepView, pair: StepPair, candidate: Candidate, component: str
) -> dict[str, bytes]:
    columns = view.columns
    mask = (view.block == candidate.block.number) & (columns.call == candidate.call)
    inputs = {}
    for row in np.flatnonzero(mask).tolist():
        name, field = pair.sites.things[int(view.thing[row])]
        if name == component and field.startswith("input") and not field.startswith("input_after"):
            inputs[field] = columns.digest[row].tobytes()
    return inputs


def _overwritten(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    """Inputs that a call overwrote in one run only, up to the divergence."""
    seen = []
    for view, row in (
        (pair.reference, candidate.reference_row),
        (pair.target, candidate.target_row),
    ):
        mask = view.block == candidate.block.number
        rows = [found for found in np.flatnonzero(mask).tolist() if row is None or found <= row]
        things = (pair.sites.things[int(view.thing[found])] for found in rows)
        seen.append([name for name in things if name[1].startswith("input_after")])
    for (component, field), side in [
        *((name, "reference") for name in seen[0] if name not in seen[1]),
        *((name, "target") for name in seen[1] if name not in seen[0]),
    ]:
        position = field.removeprefix("input_after")
        detail = f"{component or 'the model'} overwrote its input{position} in the {side} only"
        yield Evidence("overwritten", False, detail)


def _backward(pair: StepPair, component: str) -> Iterator[Evidence]:
    left, right = told_now(pair, Phase.BACKWARD, component, "grad")
    if left and right:
        equal = left.digest == right.digest
        detail = "the gradient was {} when backward left it".format(
            "equal" if equal else "different"
        )
        yield Evidence("backward", equal, detail)


def _clipping(pair: StepPair) -> Iterator[Evidence]:
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


def _clipped_before(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
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
        return f"{float(array):.6g}" if array is not None and array.size == 1 else "unknown"
    return f"{seen.plain:.6g}" if isinstance(seen.plain, float) else str(seen.plain)


def _gradients(pair: StepPair) -> Iterator[Evidence]:
    grads = [_digests(view, Phase.GRADIENT) for view in (pair.reference, pair.target)]
    if grads[0] and grads[1]:
        equal = grads[0] == grads[1]
        detail = f"{len(grads[0])} gradients " + ("equal" if equal else "differ")
        yield Evidence("gradients", equal, detail)


def _digests(view: StepView, phase: Phase) -> dict[int, bytes]:
    rows = np.flatnonzero((view.phase == phase) & ~view.context)
    return {int(view.site[row]): view.columns.digest[row].tobytes() for row in rows.tolist()}


def _hyperparameters(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    things = [thing for thing, (name, _) in enumerate(pair.sites.things) if is_group(name)]
    things = [thing for thing in things if thing != pair.sites.thing_of[candidate.site]]
    yield from _agreement(pair, candidate, things, "hyperparameters", "hyperparameters")


def _interval(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    view = pair.reference
    place = candidate.reference_row if candidate.reference_row is not None else candidate.order[1]
    inside = view.judged & ~view.stateful & (view.block <= candidate.block.number)
    before = np.flatnonzero(inside & (view.phase >= Phase.DATA))
    before = (
        before[before < place] if candidate.reference_row is not None else before[before <= place]
    )
    if len(before):
        last, first = pair.sites.sites[int(view.site[before[-1]])], pair.sites.sites[candidate.site]
        yield Evidence("interval", None, f"the runs part between {last} (equal) and {first}")


def _rng(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    generators = sorted({name for name, _ in pair.sites.things if name.startswith("rng.")})
    at_start: dict[bool, list[str]] = {True: [], False: []}
    after_forward: list[str] = []
    for name in generators:
        short = name.removeprefix("rng.")
        left, right = told_now(pair, Phase.STATE, name, "digest")
        if left and right:
            at_start[left.digest == right.digest].append(short)
        if candidate.block.phase >= Phase.FORWARD:
            left, right = told_now(pair, Phase.FORWARD, name, "digest", candidate.block.microbatch)
            if left and right and left.digest != right.digest and short in at_start[True]:
                after_forward.append(short)
    for equal, names in at_start.items():
        if names:
            word = "equal" if equal else "differs"
            detail = f"random state {word} when the step starts: {', '.join(names)}"
            yield Evidence("rng", equal, detail)
    if after_forward:
        detail = f"random state differs only after the forward pass: {', '.join(after_forward)}"
        yield Evidence("rng", False, detail)


def _checkpoints(pair: StepPair) -> Iterator[Evidence]:
    for component, field in pair.sites.things:
        if component != "checkpoint":
            continue
        left, right = told_now(pair, Phase.STATE, component, field)
        if bool(left) != bool(right):
            side = "reference" if left else "target"
            detail = f"{field} happened just before this step in the {side} only"
            yield Evidence("checkpoint", False, detail)
