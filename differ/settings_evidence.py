"""Changed settings and classes, named beside the value that they changed."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from traceparity.differ.names import within
from traceparity.differ.result import Evidence
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.step_view import StepView

_MOST = 4
_FAR = 1000


def root_class(pair: StepPair) -> str:
    """The class of the root module, by which people know it."""
    for name, _, facts in _both(pair):
        if not name:
            return str(facts.get("class", ""))
    return ""


def settings_evidence(pair: StepPair, component: str) -> Iterator[Evidence]:
    """Differences of class and settings, those nearest to ``component`` first."""
    changes: list[tuple[int, Evidence]] = []
    compared = clean = False
    for name, left, right in _both(pair):
        compared |= name == component
        clean |= name == component and left == right
        distance = _distance(name, component)
        changes += [(distance, change) for change in _changes(name, left, right)]
    changes.sort(key=lambda change: change[0])
    yield from (change for _, change in changes[:_MOST])
    if len(changes) > _MOST:
        detail = f"{len(changes) - _MOST} more settings or classes differ"
        yield Evidence("settings", False, detail)
    if compared and clean:
        yield Evidence("settings", True, f"settings of {component or 'the model'} equal")


def _distance(name: str, component: str) -> int:
    """How many levels two modules are apart; far more where neither is inside the other."""
    if not (within(component, name) or within(name, component)):
        return _FAR
    depths = [path.count(".") + 1 if path else 0 for path in (name, component)]
    return abs(depths[0] - depths[1])


def _both(pair: StepPair) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    facts: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for index, (side, view) in enumerate(
        ((pair.reference_side, pair.reference), (pair.target_side, pair.target))
    ):
        for name, values in _facts(pair, side, view):
            facts.setdefault(name, ({}, {}))[index].update(values)
    for name in sorted(facts, key=lambda name: (name.count("."), name)):
        left, right = facts[name]
        if left and right:
            yield name, left, right


def _facts(pair: StepPair, side: Side, view: StepView) -> Iterator[tuple[str, dict[str, Any]]]:
    """Class and settings by component; they are recorded once, so mostly in the first step."""
    wanted = [
        thing
        for thing, (component, field) in enumerate(pair.sites.things)
        if field in ("class", "settings")
    ]
    for step in {side.steps.numbers[0], view.number}:
        found = side.steps[step]
        for row in np.flatnonzero(np.isin(found.thing, wanted)).tolist():
            component, field = pair.sites.things[int(found.thing[row])]
            plain = found.observation(row).plain
            yield component, plain if isinstance(plain, dict) else {field: plain}


def _changes(name: str, left: dict[str, Any], right: dict[str, Any]) -> Iterator[Evidence]:
    for key in [*left, *(key for key in right if key not in left)]:
        if left.get(key) != right.get(key):
            detail = (
                f"{name or 'the model'} {key}: {_shown(left, key)} against {_shown(right, key)}"
            )
            yield Evidence("class" if key == "class" else "settings", False, detail)


def _shown(values: dict[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "absent"
