"""What differs without being a divergence: unused parts, dead settings, foreign counters."""

from functools import cached_property

import numpy as np

from traceparity.differ.candidates import Candidate
from traceparity.differ.compare import compare
from traceparity.differ.names import (
    is_generator,
    is_group,
    is_parameter_fact,
    is_scaler,
    optimizer_state_parameter,
    owner,
    scheduler_of,
    within,
)
from traceparity.differ.observation import Observation
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Flag, Kind, Phase


class Participation:
    """Which parameters and modules take part in a step of one side."""

    def __init__(self, view: StepView, pair: StepPair) -> None:
        self._view = view
        self._things = pair.sites.things

    @cached_property
    def _with_gradient(self) -> set[str]:
        return {self._things[thing][0] for thing in self._view.gradient_tensors}

    @cached_property
    def _without_gradient(self) -> set[str]:
        view = self._view
        mask = (view.phase == Phase.GRADIENT) & (view.columns.kind != Kind.TENSOR)
        return {self._things[thing][0] for thing in view.thing[mask].tolist()}

    @cached_property
    def _active_modules(self) -> set[str]:
        view = self._view
        mask = (view.phase == Phase.FORWARD) & ~view.context & ~view.stateful
        return {self._things[thing][0] for thing in np.unique(view.thing[mask]).tolist()}

    def parameter(self, name: str) -> bool:
        """Whether a parameter or buffer is used: it has a gradient, or its module is called."""
        if name in self._with_gradient:
            return True
        return name not in self._without_gradient and owner(name) in self._active_modules

    def module(self, name: str) -> bool:
        """Whether a module is called, or one of its own parameters is used."""
        return name in self._active_modules or any(
            owner(parameter) == name for parameter in self._with_gradient
        )

    def module_or_child(self, name: str) -> bool:
        """Whether a module or one inside it is used."""
        return self.module(name) or any(within(module, name) for module in self._active_modules)


class Relevance:
    """Tells differences that decide from those that only explain, for one pair of steps."""

    def __init__(self, pair: StepPair) -> None:
        self._pair = pair
        self._reference = Participation(pair.reference, pair)
        self._target = Participation(pair.target, pair)

    def decides(
        self, candidate: Candidate, reference: Observation | None, target: Observation | None
    ) -> bool:
        """Whether a difference counts as a divergence."""
        component, field = self._pair.sites.things[self._pair.sites.thing_of[candidate.site]]
        if scheduler := scheduler_of(component):
            return self._same_scheduler(scheduler)
        if reference is None or target is None:
            return self._one_sided_decides(component, field, reference or target, reference is None)
        if field == "training":
            sides = (self._reference, self._target)
            return any(side.module_or_child(component) for side in sides)
        if candidate.block.phase == Phase.STATE and is_group(component):
            return self._hyperparameter_used(candidate)
        if reference.kind == target.kind == Kind.SAMPLE_IDS:
            # Unknown IDs are no IDs: None only says that nobody could tell.
            return reference.plain is not None and target.plain is not None
        return True

    def _one_sided_decides(
        self, component: str, field: str, seen: Observation | None, in_target: bool
    ) -> bool:
        if is_scaler(component) or is_generator(component):
            return False
        if seen is not None and seen.absent_gradient and field == "grad":
            return False
        used = self._target if in_target else self._reference
        if parameter := optimizer_state_parameter(component, field):
            return self._on_both_sides(parameter) or used.parameter(parameter)
        if field == "training":
            return used.module(component)
        if field == "group":
            return used.parameter(component)
        if is_parameter_fact(field) and _is_stateful(seen):
            return (field != "value" and self._on_both_sides(component)) or used.parameter(
                component
            )
        return True

    def _on_both_sides(self, parameter: str) -> bool:
        """Whether both traces know a parameter, so that it is nobody's private auxiliary."""
        number = self._pair.sites.number(Phase.STATE, parameter, "value")
        sides = (self._pair.reference_side, self._pair.target_side)
        return number is not None and all(number in side.steps.table.location for side in sides)

    def _same_scheduler(self, scheduler: str) -> bool:
        """Whether both sides have a scheduler of one class; of another one only results count."""
        thing = self._pair.sites.thing(scheduler, "class")
        classes = [
            _latest(side, view, thing)
            for side, view in (
                (self._pair.reference_side, self._pair.reference),
                (self._pair.target_side, self._pair.target),
            )
        ]
        if classes[0] is None or classes[1] is None:
            return False
        return bool(classes[0].plain == classes[1].plain)

    def _hyperparameter_used(self, candidate: Candidate) -> bool:
        """Whether a hyperparameter that differs when a step starts is still different when used."""
        pair, thing = self._pair, int(self._pair.sites.thing_of[candidate.site])
        used = []
        for view in (pair.reference, pair.target):
            in_optimizer = view.phase == Phase.OPTIMIZER
            if not in_optimizer.any():
                return True
            rows = np.flatnonzero(in_optimizer & (view.thing == thing))
            used.append(view.observation(int(rows[0])) if len(rows) else None)
        reference, target = candidate.observations(pair)
        left, right = used[0] or reference, used[1] or target
        if left is None or right is None:
            return True
        return not compare(pair.sites.rule(candidate.site), left, right)


def _is_stateful(seen: Observation | None) -> bool:
    """Whether an observation is of a thing that stays until it changes."""
    return seen is not None and bool(seen.flags & Flag.STATEFUL)


def _latest(side: Side, view: StepView, thing: int | None) -> Observation | None:
    """What a trace last said of a thing up to and including a step."""
    if thing is None:
        return None
    rows = np.flatnonzero((view.thing == thing) & (view.phase == Phase.STATE))
    if len(rows):
        return view.observation(int(rows[-1]))
    place = side.carry.find([thing], view.number).places.get(thing)
    return side.carry.observation(place) if place else None
