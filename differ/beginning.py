"""Where a resumed run begins, by what its parameters say and by what its counters say."""

from collections.abc import Sequence
from dataclasses import dataclass

REMEDY = "declare it with --step-offset N"
_PARAMETERS = "parameter digest"
_COUNT, _STATE, _SCHEDULE = "optimizer step count", "optimizer state", "schedule"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The reference step at which a target begins.

    Attributes:
        step: The step.
        how: How it was recognised.
        doubt: What of the target speaks for another step; empty where nothing does.
    """

    step: int
    how: str
    doubt: str = ""

    @property
    def warning(self) -> str:
        """A sentence about the doubt; empty where there is none."""
        if not self.doubt:
            return ""
        return (
            f"the target is taken to begin at reference step {self.step} ({self.how}), yet "
            f"{self.doubt}; where that is wrong, {REMEDY}"
        )


@dataclass(frozen=True, slots=True)
class Votes:
    """The reference steps that start with a part of what the target starts with.

    Attributes:
        first: The first step of the reference.
        equal: Steps with the target's parameters.
        counted: Steps with its optimizers' step counts.
        stated: Steps with its optimizers' state.
        scheduled: Steps with its schedulers' counters.
        has_updated: Whether its optimizers count steps at all, so that they have made some.
    """

    first: int
    equal: list[int]
    counted: list[int]
    stated: list[int]
    scheduled: list[int]
    has_updated: bool

    def settle(self) -> Beginning | None:
        """The step that they single out.

        What is as it was when the reference began may just not have been restored, so it says
        nothing where something else is that of a later step.
        """
        found = self._by_parameters()
        if found is None and not self.equal:
            both = common(self.counted, self.scheduled)
            return _single(self.counted, _COUNT) or _single(both, f"{_COUNT} and {_SCHEDULE}")
        doubt = self._doubt()
        if not doubt:
            return found
        by_counters = self._by_counters()
        is_fresh = self.equal == [self.first]
        two_agree = by_counters is not None and " and " in by_counters.how
        if by_counters and (is_fresh or two_agree):
            others = f"its parameters are those of {_named(self.equal)}"
            return Beginning(by_counters.step, by_counters.how, others)
        return found and Beginning(found.step, found.how, doubt)

    def leave_open(self, expected: int, found: Beginning | None) -> bool:
        """Whether a target that should begin at ``expected`` may do so, whatever was found."""
        if found is None:
            return expected in self.equal or not (self.equal or self.counted)
        later = [number for steps in self._later.values() for number in steps]
        return bool(found.doubt) and (expected in later or not later)

    def _by_parameters(self) -> Beginning | None:
        return (
            _single(self.equal, _PARAMETERS)
            or _single(common(self.equal, self.counted), f"{_PARAMETERS} and {_COUNT}")
            or _single(common(self.equal, self.scheduled), f"{_PARAMETERS} and {_SCHEDULE}")
        )

    @property
    def _later(self) -> dict[str, list[int]]:
        """What only later steps than the first one start with, by its name."""
        named = {_COUNT: self.counted, _STATE: self.stated, _SCHEDULE: self.scheduled}
        return {name: steps for name, steps in named.items() if steps and self.first not in steps}

    def _doubt(self) -> str:
        """What contradicts the parameters, if nothing of a later step agrees with them."""
        later = self._later
        if any(common(self.equal, steps) for steps in later.values()):
            return ""
        for name, steps in later.items():
            return f"its {name} is that of {_named(steps)}"
        if self.equal == [self.first] and self.has_updated and self.first not in self.counted:
            return "its optimizer has made steps before"
        return ""

    def _by_counters(self) -> Beginning | None:
        later = self._later
        of_optimizer = _COUNT if _COUNT in later else _STATE
        steps, schedule = later.get(of_optimizer, []), later.get(_SCHEDULE, [])
        return (
            _single(common(steps, schedule), f"{of_optimizer} and {_SCHEDULE}")
            or _single(steps, of_optimizer)
            or (_single(schedule, _SCHEDULE) if not steps else None)
        )


def common(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """The steps that are in both."""
    return [number for number in left if number in right]


def listed(steps: Sequence[int]) -> str:
    """The first few of some steps."""
    return ", ".join(map(str, steps[:5])) + (", ..." if len(steps) > 5 else "")


def _named(steps: Sequence[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {listed(steps)}"


def _single(steps: Sequence[int], how: str) -> Beginning | None:
    return Beginning(steps[0], how) if len(steps) == 1 else None
