"""What watched functions are given, what they give, and how their calls end."""

from collections.abc import Iterator
from typing import Any

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.template import Event, Plain, Template
from traceparity.invariants.watched import CALLED, ENDED, described, function_of
from traceparity.tracefmt.records import Kind, Phase

_MOST = 8
"""An argument with more values than this is no constant."""
_VARIES = "one of many values"

ARGUMENT = Template(
    id="function.argument",
    phase=Phase.FORWARD,
    noun="watched calls",
    says="are given {}",
    fields=("function", "argument", "grad"),
    each=("function", "argument"),
    hint="who calls it, and what with; the default of the parameter",
    shows="argument",
)
TENSOR = Template(
    id="function.tensor",
    phase=Phase.FORWARD,
    noun="tensors that watched calls are given",
    says="are {}",
    fields=("function", "argument", "grad"),
    scope=("function",),
    most_outcomes=16,
    hint="what the function is given: autocast, a dimension that was added or lost",
    shows="argument",
)
RESULT = Template(
    id="function.result",
    phase=Phase.FORWARD,
    noun="watched calls",
    says="give {}",
    fields=("function", "result", "grad"),
    scope=("function",),
    most_outcomes=16,
    hint="what the function returns",
    shows="result",
)
DISTINCT = Template(
    id="function.distinct",
    phase=Phase.FORWARD,
    noun="tensors that watched calls are given",
    says={True: "differ from those of the call before", False: "are those of the call before"},
    fields=("function", "argument"),
    each=("function", "argument"),
    proposed=(True,),
    support=8,
    hint="a value that is made once and used again",
    shows="argument",
)
HOW = Template(
    id="function.ended",
    phase=Phase.FORWARD,
    noun="watched calls",
    says={"returned": "return"},
    fields=("function",),
    proposed=("returned",),
    hint="the exception, and what catches it",
    shows="ended",
)


class ValueObserver:
    """Arguments and results of watched functions in one process."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], set[tuple[type, Plain]]] = {}
        self._last: dict[tuple[str, str], bytes] = {}
        self._grad: dict[str, bool | None] = {}

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        if facts.gap:
            self._last.clear()
        for row in facts.rows(Role.WATCHED).tolist():
            name, where = facts.field(row), facts.component(row)
            function = function_of(where)
            if name == CALLED:
                said = facts.scalar(row)
                self._grad[function] = said.get("grad") if isinstance(said, dict) else None
            elif name == ENDED:
                yield Event(HOW, (function,), facts.scalar(row), component=where, row=row)
            elif name.startswith("input["):
                yield from self._argument(facts, row, function, _name_in(name))
            else:
                yield self._result(facts, row, function, name)

    def _argument(
        self, facts: StepFacts, row: int, function: str, argument: str
    ) -> Iterator[Event]:
        key, where = (function, argument), f"{function}()"
        context = function, argument, self._grad.get(function)
        value = described(facts, row)
        if facts.columns.kind[row] != Kind.TENSOR:
            value = self._bounded(key, value)
            yield Event(ARGUMENT, context, value, component=where, row=row)
            return
        yield Event(TENSOR, context, value, component=where, row=row)
        if "float" in facts.dtype(row) and max(facts.shape(row), default=1) > 1:
            digest = facts.columns.digest[row].tobytes()
            before, self._last[key] = self._last.get(key), digest
            if before is not None:
                yield Event(DISTINCT, key, digest != before, component=where, row=row)

    def _bounded(self, key: tuple[str, str], value: Any) -> Plain:
        """A value; one that stands for all where there are many of them."""
        if not isinstance(value, str | int | float | bool | None):
            return type(value).__name__
        seen = self._seen.setdefault(key, set())
        if len(seen) < _MOST or (type(value), value) in seen:
            seen.add((type(value), value))
            return value
        return _VARIES

    def _result(self, facts: StepFacts, row: int, function: str, name: str) -> Event:
        value = described(facts, row)
        if facts.columns.kind[row] != Kind.TENSOR:
            value = {type(None): "nothing", bool: "yes or no", str: "a text"}.get(
                type(value), "a number"
            )
        context = function, name, self._grad.get(function)
        return Event(RESULT, context, value, component=f"{function}()", row=row)


def _name_in(field: str) -> str:
    """``strength`` of ``input[strength]``, ``x[0]`` of ``input[x][0]``."""
    name, _, rest = field.removeprefix("input[").partition("]")
    return name + rest


TEMPLATES = (ARGUMENT, TENSOR, RESULT, DISTINCT, HOW)
