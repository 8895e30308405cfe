"""The law of schedules: a scheduler that was made is stepped, as often as it was made for."""

from collections.abc import Iterator
from dataclasses import dataclass

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.roles import Role
from traceparity.tracefmt.records import Phase

SCHEDULE_FOLLOWED = Rule(
    "hyperparameter",
    "schedule-followed",
    "a scheduler steps, once an epoch or once an update as its length says, and its rates are used",
    "is scheduler.step() called, at the right level of the loop, and does anything else set rates?",
)
_ENOUGH_EPOCHS = 2
_WAITING = ("SWALR",)
_RARELY = 0.05


@dataclass(slots=True)
class _Rate:
    """What a scheduler has left as the rate of a group, and where another one was used."""

    scheduled: float | None = None
    used: int = 0


class ScheduleFollowed:
    """A scheduler never steps, steps too often, or its rate is overwritten now and then."""

    def __init__(self) -> None:
        self._never: Finding | None = None
        self._passes = 0
        self._stepped: Finding | None = None
        self._updates = 0
        self._told = False
        self._rates: dict[str, _Rate] = {}
        self._overwritten: list[Finding] = []
        self._rate_seen: dict[str, float] = {}
        self._constant = True

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        yield from self._too_often(facts)
        self._watch_rates(facts)
        ends = [end for end in facts.pass_ends if end[0].startswith("loader[")]
        if not ends or facts.tail:
            return
        self._passes += len(ends)
        kinds = [name for name in facts.state.classes if name.startswith("scheduler")]
        waiting = all(facts.state.classes[name] in _WAITING for name in kinds)
        if self._never is None and kinds and not waiting:
            self._never = facts.finding(
                SCHEDULE_FOLLOWED, Phase.SCHEDULER, kinds[0], "step",
                "a step when an epoch ends, at the latest",
                f"{facts.state.classes[kinds[0]]} does not step in the whole run",
            )  # fmt: skip

    def _too_often(self, facts: StepFacts) -> Iterator[Finding]:
        """Stepped at each update, but made for as many steps as there are epochs."""
        if not facts.scheduler_steps or self._told:
            return
        name = next(iter(facts.scheduler_steps))
        if self._stepped is None:
            self._stepped = facts.finding(
                SCHEDULE_FOLLOWED, Phase.SCHEDULER, name, "step", "one step an epoch",
                "one step an update",
            )  # fmt: skip
            self._updates = 0
        self._updates += 1
        settings = facts.state.settings.get(name)
        length = settings.get("T_max") if isinstance(settings, dict) else None
        within_a_pass = self._passes == 0 and not facts.pass_ends
        if (
            facts.state.classes.get(name) == "CosineAnnealingLR"
            and isinstance(length, int)
            and within_a_pass
            and self._updates > length
        ):
            self._told = True
            yield self._stepped

    def _watch_rates(self, facts: StepFacts) -> None:
        for group, used in facts.rates_used.items():
            known = self._rates.setdefault(group, _Rate())
            self._constant &= self._rate_seen.setdefault(group, used) == used
            scheduled = known.scheduled
            other = not facts.gap and scheduled != used
            if scheduled is not None and other and not _restored(facts):
                self._overwritten.append(_overwritten(facts, group, scheduled, used))
            known.scheduled = None
            known.used += 1
        for group, after in facts.rates_after.items():
            self._rates.setdefault(group, _Rate()).scheduled = after
        for name in facts.scheduler_steps:
            # It has stepped, be it without effect on the rates.
            self._constant = self._constant and not name

    def end(self) -> Iterator[Finding]:
        """Tell of what only the whole run shows."""
        if self._never is not None and self._passes >= _ENOUGH_EPOCHS and self._constant:
            yield self._never
        updates = max((known.used for known in self._rates.values()), default=0)
        steps = {finding.step for finding in self._overwritten}
        if len(steps) <= max(1.0, _RARELY * updates):
            yield from self._overwritten


def _restored(facts: StepFacts) -> bool:
    """Whether a checkpoint was loaded, the counters of schedulers included."""
    counters = facts.rows(Role.COUNTER)
    told = (facts.phase(counters) == Phase.STATE).any()
    return bool(told) and len(facts.rows(Role.CHECKPOINT)) > 0


def _overwritten(facts: StepFacts, group: str, scheduled: float, used: float) -> Finding:
    expected = f"{scheduled:g}, as the scheduler left it"
    return facts.finding(SCHEDULE_FOLLOWED, Phase.OPTIMIZER, group, "lr", expected, f"{used:g}")
