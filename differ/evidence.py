"""What was equal around the first divergence and what was not: facts, no claim of a cause."""

from collections.abc import Iterator

from traceparity.differ.candidates import Candidate
from traceparity.differ.collective_evidence import collectives
from traceparity.differ.forward_evidence import inputs, interval, overwritten, training_flags
from traceparity.differ.gradient_evidence import (
    all_gradients,
    backward_gradient,
    clipped_before,
    clipping,
    own_gradient,
)
from traceparity.differ.loss_evidence import micro_batch_losses, rounding
from traceparity.differ.moment import likeness, told_now
from traceparity.differ.names import (
    is_group,
    operator_of,
    optimizer_state_parameter,
    scheduler_of,
    within,
)
from traceparity.differ.operator_evidence import operator_origin
from traceparity.differ.result import Divergence, Evidence
from traceparity.differ.settings_evidence import settings_evidence
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import StepView
from traceparity.differ.update_evidence import (
    clipped_while_scaled,
    schedule_steps,
    update_counts,
    zeroing,
)
from traceparity.tracefmt.records import Phase


def evidence_for(
    pair: StepPair, candidate: Candidate, divergence: Divergence
) -> Iterator[Evidence]:
    """The evidence for a divergence, by the phase in which it is."""
    phase = candidate.block.phase
    component = divergence.component
    yield from _before(pair, candidate)
    yield from rounding(pair, candidate, divergence)
    if candidate.structural:
        yield from _structure(pair, candidate, component)
    if phase == Phase.STATE:
        yield from _state(pair, candidate, divergence)
    yield from operator_origin(pair, candidate, component, divergence.field)
    if phase in (Phase.FORWARD, Phase.LOSS) or operator_of(divergence.field):
        yield from inputs(pair, candidate, component, divergence.field)
    if phase in (Phase.FORWARD, Phase.LOSS):
        yield from _parameters_and_buffers(pair, candidate, component)
        yield from training_flags(pair, candidate, component)
        yield from overwritten(pair, candidate)
    if phase == Phase.LOSS:
        yield from micro_batch_losses(pair, divergence)
    if phase == Phase.BACKWARD:
        yield from clipped_before(pair, candidate)
    if phase in (Phase.BACKWARD, Phase.GRADIENT):
        yield from zeroing(pair)
    if phase == Phase.GRADIENT:
        found = backward_gradient(pair, component)
        # Of ranks that share a batch otherwise each has a gradient of its own before reduction.
        compared = "backward" in pair.policy.align.phases
        yield from (each for each in found if compared or each.equal)
        yield from clipping(pair)
        yield from clipped_while_scaled(pair)
    if phase == Phase.OPTIMIZER:
        parameter = optimizer_state_parameter(component, divergence.field) or component
        yield from own_gradient(pair, parameter)
        yield from update_counts(pair, parameter)
    if phase in (Phase.OPTIMIZER, Phase.SCHEDULER):
        yield from schedule_steps(pair)
        yield from all_gradients(pair)
        yield from _hyperparameters(pair, candidate)
    if phase != Phase.DATA:
        yield from settings_evidence(pair, component)
        yield from collectives(pair, candidate)
    if phase in (Phase.FORWARD, Phase.LOSS) or divergence.field.startswith("grad_output"):
        yield from interval(pair, candidate)
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
    yield from likeness(pair, candidate, things).evidence(what, noun)


def _parameters_and_buffers(
    pair: StepPair, candidate: Candidate, component: str
) -> Iterator[Evidence]:
    things = pair.sites.things
    trained = {name for name, field in things if field == "requires_grad"}
    own = pair.sites.thing_of[candidate.site]
    parameters: list[int] = []
    buffers: list[int] = []
    for thing, (name, field) in enumerate(things):
        if name == "loss" or name.startswith("scaler."):
            continue
        if field == "value" and within(name, component) and not scheduler_of(name) and thing != own:
            (parameters if name in trained else buffers).append(thing)
    yield from _agreement(pair, candidate, parameters, "parameters", "parameters")
    yield from _agreement(pair, candidate, buffers, "buffers", "buffers")


def _hyperparameters(pair: StepPair, candidate: Candidate) -> Iterator[Evidence]:
    things = [thing for thing, (name, _) in enumerate(pair.sites.things) if is_group(name)]
    things = [thing for thing in things if thing != pair.sites.thing_of[candidate.site]]
    yield from _agreement(pair, candidate, things, "hyperparameters", "hyperparameters")


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
    unused = [name for name in at_start[False] if not _draws(pair, f"rng.{name}")]
    used = [name for name in at_start[False] if name not in unused]
    start = "when the step starts"
    if at_start[True]:
        yield Evidence("rng", True, f"random state equal {start}: {', '.join(at_start[True])}")
    if used:
        yield Evidence("rng", False, f"random state differs {start}: {', '.join(used)}")
    if unused:
        # Two healthy processes differ in a generator that nothing seeds and nothing uses.
        named = ", ".join(unused)
        yield Evidence("rng", False, f"random state differs, yet nothing draws from it: {named}")
    if after_forward:
        detail = f"random state differs only after the forward pass: {', '.join(after_forward)}"
        yield Evidence("rng", False, detail)


def _draws(pair: StepPair, generator: str) -> bool:
    """Whether a generator moves between this step and one beside it, in either run."""
    site = pair.sites.number(Phase.STATE, generator, "digest")
    for side, number in (
        (pair.reference_side, pair.reference_step),
        (pair.target_side, pair.target_step),
    ):
        beside = [near for near in (number - 1, number + 1) if near in side.steps.entries]
        digests = {_last_digest(side.steps[near], site) for near in (number, *beside)}
        if len(digests - {None}) > 1 or not beside:
            return True
    return False


def _last_digest(view: StepView, site: int | None) -> bytes | None:
    rows = view.rows(Phase.STATE, site)
    return view.observation(rows[-1]).digest if rows else None


def _checkpoints(pair: StepPair) -> Iterator[Evidence]:
    for component, field in pair.sites.things:
        if component != "checkpoint":
            continue
        left, right = told_now(pair, Phase.STATE, component, field)
        if bool(left) != bool(right):
            side = "reference" if left else "target"
            detail = f"{field} happened just before this step in the {side} only"
            yield Evidence("checkpoint", False, detail)
