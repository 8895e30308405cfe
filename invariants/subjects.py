"""Subjects: what kind of tensor or module something happened to, and how often in a step."""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceparity.invariants.state import Ids
from traceparity.invariants.template import Event, Plain, Template

if TYPE_CHECKING:
    from traceparity.invariants.facts import StepFacts

_NUMBER = re.compile(r"(?<![^.\[])\d+(?![^.\]])")
KIND = ("class", "name", "path")
"""Context fields of a tensor: class of its module, its name in it, its path without numbers."""

Labels = Sequence[Plain]
Codes = tuple[npt.NDArray[Any], Labels]
"""One context field of many events: a number for each, and what the numbers mean."""


@functools.lru_cache(maxsize=1 << 16)
def pattern_of(path: str) -> str:
    """A path with ``{i}`` for numbers, so that a deeper model has the same ones."""
    return _NUMBER.sub("{i}", path)


class Subjects:
    """Numbers for the kinds of tensors of one trace."""

    def __init__(self) -> None:
        self._kinds: list[tuple[str, str, str]] = []
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._of_tensor: Ids = np.zeros(0, np.int64)
        self._last: dict[str, tuple[bytes, list[tuple[int, int, int]]]] = {}
        self._decoded: dict[str, dict[int, tuple[tuple[Plain, ...], Plain]]] = {}

    def kinds(self, facts: "StepFacts") -> Ids:
        """The number of each tensor's kind."""
        known, tensors = len(self._of_tensor), facts.names.tensors
        if len(tensors) > known:
            new = [self._number(facts, name) for name in tensors[known:]]
            self._of_tensor = np.concatenate([self._of_tensor, np.array(new, np.int64)])
        return self._of_tensor

    def _number(self, facts: "StepFacts", name: str) -> int:
        owner, _, leaf = name.rpartition(".")
        kind = (facts.state.classes.get(owner, ""), leaf or name, pattern_of(name))
        found = self._numbers.get(kind)
        if found is None:
            found = self._numbers[kind] = len(self._kinds)
            self._kinds.append(kind)
        return found

    def events(
        self,
        facts: "StepFacts",
        template: Template,
        tensors: Ids,
        outcome: Codes,
        context: Sequence[Codes] = (),
        rows: Ids | None = None,
    ) -> Iterator[Event]:
        """One event for each kind of tensor, context and outcome.

        Args:
            facts: The step.
            template: Its fields are those of ``context``, then `KIND`.
            tensors: Numbers of the tensors.
            outcome: Of each of them.
            context: Of each of them.
            rows: Rows that show it.
        """
        if not len(tensors):
            return
        codes, sizes = self.kinds(facts)[tensors], []
        for numbers, labels in (*context, outcome):
            codes = codes * len(labels) + numbers
            sizes.append(labels)
        known = self._decoded.setdefault(template.id, {})
        names = facts.names.tensors
        for code, at, count in self._counted(template, codes):
            said = known.get(code)
            if said is None:
                said = known[code] = self._decode(code, sizes)
            yield Event(
                template,
                said[0],
                said[1],
                count,
                names[int(tensors[at])],
                -1 if rows is None else int(rows[at]),
                _members(names, tensors, codes, code),
            )

    def _counted(self, template: Template, codes: Ids) -> list[tuple[int, int, int]]:
        """Code, first place and count of the different codes; most steps repeat the one before."""
        key = codes.tobytes()
        last = self._last.get(template.id)
        if last is not None and last[0] == key:
            return last[1]
        found, first, counts = np.unique(codes, return_index=True, return_counts=True)
        told = list(zip(found.tolist(), first.tolist(), counts.tolist(), strict=True))
        self._last[template.id] = key, told
        return told

    def _decode(self, code: int, sizes: list[Labels]) -> tuple[tuple[Plain, ...], Plain]:
        values: list[Plain] = []
        for labels in reversed(sizes):
            code, number = divmod(code, len(labels))
            values.append(labels[number])
        outcome, *context = values
        return (*reversed(context), *self._kinds[code]), outcome


def _members(names: list[str], tensors: Ids, codes: Ids, code: int) -> Any:
    return lambda: [names[number] for number in tensors[codes == code].tolist()]


BOOLS: Labels = (False, True)
"""Labels of a mask."""
