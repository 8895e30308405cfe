"""F, the function law: when watched functions are called, in which order, inside of what."""

from collections.abc import Iterator, Sequence

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.relations.function_values import TEMPLATES as OF_VALUES
from traceparity.invariants.relations.function_values import ValueObserver
from traceparity.invariants.template import Event, Template
from traceparity.invariants.watched import (
    BACKWARD,
    CALLED,
    ENDED,
    EPOCH_END,
    EVALUATION,
    FORWARD,
    Call,
    Mark,
    begun,
    marks_of,
)
from traceparity.tracefmt.records import Phase

_ALL = (Phase.STATE, Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.GRADIENT, Phase.OPTIMIZER)
_FIRST, _LAST, _WITHIN = "before the first update", "around an epoch's end", "within an epoch"
_MANY = 32
"""Answers of a question that each function answers for itself."""
_LONGEST = 12
"""A sequence of more different calls than this says nothing that a person would read."""

COUNT = Template(
    id="function.count",
    phase=Phase.FORWARD,
    noun="watched functions",
    says={
        0: "are not called from one update to the next",
        1: "are called once from one update to the next",
        **{n: f"are called {n} times from one update to the next" for n in range(2, 65)},
    },
    fields=("function", "when"),
    needs=(Phase.OPTIMIZER,),
    scope=("function",),
    most_outcomes=_MANY,
    hint="a call is missing, too many, or in another branch or loop",
    shows="called",
)
ENABLED = Template(
    id="function.grad",
    phase=Phase.FORWARD,
    noun="watched calls",
    says={True: "have gradients enabled", False: "have gradients disabled"},
    fields=("function", "inside"),
    hint="no_grad(), inference_mode() and enable_grad() around the call",
    shows="called",
)
PLACE = Template(
    id="function.place",
    phase=Phase.OPTIMIZER,
    noun="watched calls",
    says="come {}",
    fields=("function", "grad"),
    needs=_ALL,
    scope=("function",),
    most_outcomes=_MANY,
    hint="the call is at another place in the loop",
    shows="called",
)
ORDER = Template(
    id="function.order",
    phase=Phase.OPTIMIZER,
    noun="watched functions and passes, from one update to the next,",
    says="come in the order {}",
    fields=("watch", "when"),
    scope=("watch",),
    needs=_ALL,
    hint="calls are missing, too many or out of order",
    shows="order",
)
CONTAINS = Template(
    id="function.contains",
    phase=Phase.OPTIMIZER,
    noun="watched calls",
    says={True: "contain this part", False: "do not contain it"},
    fields=("function", "part"),
    proposed=(True,),
    needs=_ALL,
    scope=("function", "part"),
    hint="the function leaves a call out, or makes it elsewhere",
    shows="part",
)
INSIDE = Template(
    id="function.inside",
    phase=Phase.FORWARD,
    noun="watched calls",
    says="are made inside {}",
    fields=("function", "watch"),
    scope=("function", "watch"),
    most_outcomes=_MANY,
    hint="the function is called from elsewhere",
    shows="called",
)
BETWEEN = Template(
    id="function.between",
    phase=Phase.OPTIMIZER,
    noun="watched calls",
    says={
        True: "have a call of the other one between any two of them",
        False: "have no call of the other one since the one before",
    },
    fields=("function", "other"),
    each=("function", "other"),
    proposed=(True,),
    support=4,
    needs=(Phase.OPTIMIZER,),
    hint="the other function is not called, too early or too late",
    shows="other",
)


class Observer:
    """Calls of watched functions in one process."""

    def __init__(self) -> None:
        self._values = ValueObserver()
        self._first = self._whole = True
        self._forget()

    def _forget(self) -> None:
        """What comes next does not go on from what was seen."""
        self._under_way: list[Call] = []
        # Since the last update: what happened, and the calls that began.
        self._marks: list[Mark] = []
        self._calls: list[tuple[Call, int]] = []
        self._between: list[tuple[Call, str, bool]] = []
        # What was seen since the last call of a function.
        self._since: dict[str, set[str]] = {}

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        watched = sorted(facts.view.watched)
        if not watched:
            return
        if facts.gap or (facts.first and facts.step):
            self._forget()
            self._first = self._whole = False
        yield from self._values.step(facts)
        marks = marks_of(facts)
        last = max((at for at, mark in enumerate(marks) if mark.is_update), default=-1)
        for at, mark in enumerate(marks):
            yield from self._mark(facts, mark, watched)
            if at == last:
                yield from self._segment(facts, watched)

    def _mark(self, facts: StepFacts, mark: Mark, watched: Sequence[str]) -> Iterator[Event]:
        self._marks.append(mark)
        if mark.what == CALLED:
            yield from self._begins(facts, mark, watched)
        elif mark.what == ENDED:
            yield from self._ends(facts, mark, watched)
        else:
            for call in self._under_way:
                call.contains.add(mark.what)

    def _begins(self, facts: StepFacts, mark: Mark, watched: Sequence[str]) -> Iterator[Event]:
        call, name = begun(facts, mark), mark.function
        call.inside = tuple(each.function for each in self._under_way)
        for outer in self._under_way:
            outer.contains.add(name)
        for other in watched:
            if other != name and other not in call.inside and name in self._since:
                self._between.append((call, other, other in self._since[name]))
        for other, seen in self._since.items():
            if other not in call.inside:
                seen.add(name)
        self._since[name] = set()
        if self._whole:
            # Else it may be part of a call that began where nothing was recorded.
            yield from _of_call(call, watched)
        self._under_way.append(call)
        self._calls.append((call, len(self._marks)))

    def _ends(self, facts: StepFacts, mark: Mark, watched: Sequence[str]) -> Iterator[Event]:
        for at in reversed(range(len(self._under_way))):
            if self._under_way[at].function == mark.function:
                call = self._under_way[at]
                # Calls of generators and those that another thread ended are let go.
                del self._under_way[at:]
                if facts.scalar(mark.row) == "returned":
                    yield from _contained(call, mark.row, watched)
                return

    def _segment(self, facts: StepFacts, watched: Sequence[str]) -> Iterator[Event]:
        """What happened from one update to the next one, which has just been seen."""
        marks, calls, between = self._marks, self._calls, self._between
        when, whole = self._when(marks), self._whole
        self._marks, self._calls, self._between = [], [], []
        self._first, self._whole = False, True
        if not whole:
            return
        counts = {name: sum(call.function == name for call, _ in calls) for name in watched}
        for name, count in counts.items():
            yield Event(COUNT, (name, when), count, component=f"{name}()")
        for call, at in calls:
            context, place = (call.function, call.grad), _place(call, marks[at:])
            row = call.row if call.step == facts.step else -1
            yield Event(PLACE, context, place, component=f"{call.function}()", row=row)
        for call, other, outcome in between:
            # What comes once each time has one of all others between by that alone.
            if (counts[call.function], counts[other]) != (1, 1):
                row = call.row if call.step == facts.step else -1
                yield _event(BETWEEN, call.function, other, outcome, row)
        order = _order(marks)
        if order:
            yield Event(ORDER, (", ".join(watched), when), order, component="step")

    def _when(self, marks: Sequence[Mark]) -> str:
        if self._first:
            return _FIRST
        return _LAST if any(mark.what == EPOCH_END for mark in marks) else _WITHIN


def _event(template: Template, name: str, other: str, outcome: bool, row: int) -> Event:
    return Event(template, (name, other), outcome, component=f"{name}()", row=row)


def _of_call(call: Call, watched: Sequence[str]) -> Iterator[Event]:
    name, inside = f"{call.function}()", call.inside[-1] if call.inside else ""
    if call.grad is not None:
        yield Event(ENABLED, (call.function, inside), call.grad, component=name, row=call.row)
    if len(watched) > 1:
        outer = inside or "no other watched function"
        yield Event(
            INSIDE, (call.function, ", ".join(watched)), outer, component=name, row=call.row
        )


def _contained(call: Call, row: int, watched: Sequence[str]) -> Iterator[Event]:
    updates = {what for what in call.contains if what.endswith("].step")}
    there = {*call.contains, *({"update"} if updates else ())}
    for what in (FORWARD, BACKWARD, "update", EVALUATION, *watched):
        if what != call.function:
            yield _event(CONTAINS, call.function, what, what in there, row)


def _place(call: Call, after: Sequence[Mark]) -> str:
    if call.phase == Phase.BACKWARD:
        return "inside the backward pass"
    if call.phase == Phase.OPTIMIZER:
        return "inside the update"
    following = next(mark for mark in after if mark.what in (FORWARD, BACKWARD) or mark.is_update)
    if following.is_update:
        return "between a backward pass and the update"
    if following.what == BACKWARD:
        return "between a forward and a backward pass"
    return "inside the forward pass" if call.phase == Phase.FORWARD else "before the forward pass"


def _order(marks: Sequence[Mark]) -> str:
    """The calls and passes in words, what is repeated once; empty where there are too many."""
    said = [
        mark.function if mark.what == CALLED else mark.what
        for mark in marks
        if mark.what not in (ENDED, EPOCH_END, EVALUATION) and not mark.what.endswith(" step")
    ]
    said = _once(said)
    return ", ".join(said) if len(said) <= _LONGEST else ""


def _once(said: list[str]) -> list[str]:
    """A sequence in which parts that come several times in a row come once."""
    for size in range(1, _LONGEST // 2 + 1):
        kept: list[str] = []
        for word in said:
            kept.append(word)
            if kept[-size:] == kept[-2 * size : -size]:
                del kept[-size:]
        said = kept
    return said


TEMPLATES = (
    COUNT, ENABLED, PLACE, ORDER, CONTAINS, INSIDE, BETWEEN, *OF_VALUES,
)  # fmt: skip
