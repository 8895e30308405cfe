"""H, the hyperparameter law: options of optimizers, learning rates and their schedules."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.rates import Courses, arguments
from traceparity.invariants.template import Departure, Event, Plain, Template
from traceparity.tracefmt.records import Phase

_SWITCHES = frozenset(
    {"foreach", "fused", "capturable", "differentiable", "initial_lr", "decoupled_weight_decay"}
)
"""Entries that choose an implementation or only remember."""

VALUE = Template(
    id="hyperparameter.value",
    phase=Phase.OPTIMIZER,
    noun="optimizer groups",
    says="have the value {}",
    fields=("optimizer", "option", "group"),
    each=("optimizer", "option"),
    needs=(Phase.OPTIMIZER,),
    hint="the option was set to something else than in the reference",
    shows="option",
)
BASE_RATE = Template(
    id="hyperparameter.base_rate",
    phase=Phase.OPTIMIZER,
    noun="optimizer groups",
    says="begin with a base learning rate of {}",
    fields=("schedulers", "optimizer", "group"),
    each=("schedulers", "optimizer"),
    support=1,
    needs=(Phase.OPTIMIZER,),
    hint="the learning rate that the optimizer is made with",
    shows="lr",
)
"""The rate that schedulers multiply, which is another one than they use at first; where none drives
the group the rate itself, if it is still the same at the second update."""
RATE_KEPT = Template(
    id="hyperparameter.rate_kept",
    phase=Phase.OPTIMIZER,
    noun="learning rates at an update",
    says={
        True: "are those that the optimizer or the scheduler left",
        False: "were set by hand since",
    },
    needs=(Phase.OPTIMIZER, Phase.SCHEDULER, Phase.STATE),
    hint="something beside the scheduler writes to param_groups",
    shows="lr",
)
SCHEDULED = Template(
    id="hyperparameter.scheduled",
    phase=Phase.SCHEDULER,
    noun="schedulers in a step",
    says={0: "do not step", 1: "step once", 2: "step twice"},
    fields=("epoch_end", "scheduler"),
    scope=("scheduler",),
    needs=(Phase.OPTIMIZER, Phase.SCHEDULER, Phase.DATA),
    hint="where scheduler.step() is called: once an epoch, or once an update",
    shows="step",
)
RATIO = Template(
    id="hyperparameter.ratio",
    phase=Phase.SCHEDULER,
    noun="learning rates",
    says="become {} times as large at a step of the scheduler",
    fields=("scheduler", "settings"),
    each=("scheduler", "settings"),
    most_outcomes=2,
    needs=(Phase.SCHEDULER,),
    hint="the settings of the scheduler",
    shows="lr",
)
SCHEDULE = Template(
    id="hyperparameter.schedule",
    phase=Phase.SCHEDULER,
    noun="schedulers",
    says="have the value {}",
    fields=("scheduler", "setting"),
    each=("scheduler", "setting"),
    needs=(Phase.STATE, Phase.SCHEDULER),
    hint="the scheduler was made with something else than in the reference",
    shows="setting",
)
COURSE = Template(
    id="hyperparameter.course",
    phase=Phase.SCHEDULER,
    noun="learning rates as parts of the first one",
    says="are {}",
    fields=("group", "optimizer", "scheduler", "arguments", "scheduler_steps"),
    each=("optimizer", "scheduler", "arguments", "scheduler_steps"),
    support=1,
    needs=(Phase.STATE, Phase.OPTIMIZER, Phase.SCHEDULER),
    is_table=True,
    hint="the function that the scheduler is given, its warm-up, its milestones",
    shows="lr",
)
"""By the number of steps that the scheduler took; of a run in which it takes another number of them
the function may well be another one."""
OWN_COURSE = replace(COURSE, id="hyperparameter.own_course", runs=2)
"""The same of a scheduler that torch does not have, whose rates may depend on anything."""
_FORMULAS = frozenset(
    {
        "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR",
        "ExponentialLR", "LinearLR", "MultiStepLR", "OneCycleLR", "PolynomialLR", "StepLR",
    }
)  # fmt: skip
"""Schedulers whose plain arguments say all of the rates: `SCHEDULE` and `RATIO` judge them."""
_FUNCTIONS = frozenset({"LambdaLR", "MultiplicativeLR", "SequentialLR"})
"""Schedulers of torch whose arguments do not show the rates."""
_LENGTHS = frozenset(
    {
        "T_max", "T_0", "epochs", "milestones", "step_size", "step_size_down", "step_size_up",
        "steps_per_epoch", "total_iters", "total_steps",
    }
)  # fmt: skip
"""Settings of schedulers that are about the length of a run, and so are another run's own."""


class Observer:
    """Options and learning rates."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[dict[str, Any], list[Event]]] = {}
        self._begun: dict[str, float] = {}
        self._settings: dict[str, tuple[Any, list[Event]]] = {}
        self._courses = Courses()

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        self._courses.step(facts)
        for group, rate in facts.rates_used.items():
            yield from self._options(facts, group)
            yield from self._base(facts, group, rate)
            before = facts.rates_before.get(group)
            if before is not None and not facts.gap:
                seen = f"{before:g} was left, {rate:g} is used"
                yield Event(RATE_KEPT, (), rate == before, component=group, seen=seen)
        if facts.updated:
            yield from _schedulers(facts)
            for name in _names(facts):
                yield from self._made_with(facts, name)

    def end(self, facts: StepFacts) -> Iterator[Event]:
        """What the whole run shows; ``facts`` is its last step."""
        for course in self._courses.end():
            kind = facts.state.classes.get(course.scheduler, "")
            if kind in _FORMULAS:
                continue
            optimizer, group = self._of(facts, course.group)
            yield Event(
                COURSE if kind in _FUNCTIONS else OWN_COURSE,
                (group, optimizer, kind, arguments(facts), course.last),
                course.text,
                component=course.group,
                departs=course.departs,
            )

    def _base(self, facts: StepFacts, group: str, rate: float) -> Iterator[Event]:
        """The base rate of a group, once."""
        base = facts.state.hyperparameters.get(group, {}).get("initial_lr")
        if facts.begins:
            self._begun[group] = rate
        elif self._begun.pop(group, None) != rate or facts.gap:
            return
        driven = isinstance(base, int | float)
        if facts.begins != driven:
            return
        names = sorted({facts.state.classes.get(name, "") for name in _names(facts)})
        context = ", ".join(names) if driven else "none", *self._of(facts, group)
        said = float(base) if isinstance(base, int | float) else rate
        yield Event(BASE_RATE, context, said, component=group, departs=partial(_other_rate, said))

    def _made_with(self, facts: StepFacts, name: str) -> Iterator[Event]:
        settings = facts.state.settings.get(name)
        told = self._settings.get(name)
        if told is None or told[0] != settings:
            kind = facts.state.classes.get(name, "")
            events = [
                Event(SCHEDULE, (kind, key), _plain(value), component=name, seen=str(value))
                for key, value in (settings or {}).items()
                if key not in _LENGTHS
            ]
            told = self._settings[name] = settings, events
        yield from told[1]

    def _of(self, facts: StepFacts, group: str) -> tuple[str, str]:
        optimizer, _, number = group.partition(" ")
        return facts.state.classes.get(optimizer, ""), number

    def _options(self, facts: StepFacts, group: str) -> Iterator[Event]:
        options = facts.state.hyperparameters.get(group, {})
        told = self._told.get(group)
        if told is None or told[0] != options:
            kind, number = self._of(facts, group)
            events = [
                Event(VALUE, (kind, name, number), _plain(value), component=group, seen=str(value))
                for name, value in options.items()
                if name != "lr" and name not in _SWITCHES
            ]
            told = self._told[group] = dict(options), events
        yield from told[1]


def _other_rate(rate: float, expected: Plain) -> Departure | None:
    """A rate shows at the first update, even if it takes a second one to tell."""
    if expected == rate:
        return None
    return Departure(0, BASE_RATE.say(expected), BASE_RATE.say(rate))


def _schedulers(facts: StepFacts) -> Iterator[Event]:
    ended = any(loader.startswith("loader[") for loader, _ in facts.pass_ends)
    names = _names(facts)
    for name in names:
        kind = facts.state.classes.get(name, "")
        yield Event(SCHEDULED, (ended, kind), facts.scheduler_steps.get(name, 0), component=name)
    if len(names) == 1 and sum(facts.scheduler_steps.values()) == 1:
        (name,) = names
        settings = _plain(facts.state.settings.get(name))
        context = facts.state.classes.get(name, ""), settings
        for group, rate in facts.rates_after.items():
            used = facts.rates_used.get(group)
            if used:
                # Twelve digits: a scheduler multiplies, and the last bits vary.
                ratio = float(f"{rate / used:.12g}")
                seen = f"{used:g} became {rate:g}"
                yield Event(RATIO, context, ratio, component=group, seen=seen)


def _names(facts: StepFacts) -> list[str]:
    """The schedulers of a run."""
    counters = (name for name in facts.state.counters if name.endswith(".last_epoch"))
    return sorted({name.rpartition(".")[0] for name in counters})


def _plain(value: Any) -> Plain:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, sort_keys=True)


TEMPLATES = (VALUE, BASE_RATE, RATE_KEPT, SCHEDULED, RATIO, SCHEDULE, COURSE, OWN_COURSE)
