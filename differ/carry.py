"""The value of a thing between its rows: they are news, silence means "as before"."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceparity.differ.observation import Observation
from traceparity.differ.sites import Ids
from traceparity.differ.step_view import Mask, Steps, StepView
from traceparity.tracefmt.records import Phase


@dataclass(frozen=True, slots=True)
class Found:
    """Where things were last told of.

    Attributes:
        places: ``(step, row)`` by thing, of those that were found.
        complete: Whether the search reached a listing of everything, so that a thing that was not
            found did not exist; False where steps before were not recorded.
    """

    places: dict[int, tuple[int, int]]
    complete: bool


@dataclass(frozen=True, slots=True)
class CarriedState:
    """All things of one side at one moment, as arrays over ``n`` things that have a value.

    Attributes:
        things: Thing numbers, in the order in which they were first seen.
        sites: Joint number of the row that last told of each.
        steps: Step of that row.
        rows: The row.
        digests: ``(n, 2)`` digests.
        decides: Whether any row of the thing decides, rather than being context.
        complete: Whether everything that existed is listed.
    """

    things: Ids
    sites: Ids
    steps: Ids
    rows: Ids
    digests: npt.NDArray[np.uint64]
    decides: Mask
    complete: bool


class Carry:
    """Looks up values that were carried to a moment of a trace, reading only what it must."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def find(self, things: Collection[int], before: int) -> Found:
        """Where things were last told of in the steps before ``before``, going backwards."""
        wanted = set(things)
        places: dict[int, tuple[int, int]] = {}
        number, first = before - 1, True
        while wanted and number in self._steps.entries:
            first = False
            view = self._steps[number]
            mask = (view.stateful | (view.phase == Phase.STATE)) & np.isin(view.thing, list(wanted))
            for thing, row in view.last_rows(mask).items():
                places[thing] = number, row
                wanted.discard(thing)
            if view.is_whole:
                return Found(places, complete=True)
            number -= 1
        return Found(places, complete=not wanted or (first and before == self._first))

    @property
    def _first(self) -> int:
        return self._steps.numbers[0] if self._steps.numbers else 0

    def observation(self, place: tuple[int, int]) -> Observation:
        """The observation at a place."""
        return self._steps[place[0]].observation(place[1])

    def start_of(self, number: int) -> CarriedState:
        """All things as they are when a step starts, its own ``state`` rows included."""
        moving = _Moving(len(self._steps.sites.things))
        begin = number
        while begin - 1 in self._steps.entries:
            begin -= 1
        for earlier in range(begin, number):
            view = self._steps[earlier]
            moving.take(view, view.stateful)
        if number in self._steps.entries:
            view = self._steps[number]
            moving.take(view, view.stateful & (view.phase == Phase.STATE))
        return moving.state()


class _Moving:
    """The carried state while steps go by."""

    def __init__(self, things: int) -> None:
        self._step = np.full(things, -1, np.int64)
        self._row = np.zeros(things, np.int64)
        self._site = np.zeros(things, np.int64)
        self._digest = np.zeros((things, 2), np.uint64)
        self._decides = np.zeros(things, np.bool_)
        self._first_seen = np.full(things, -1, np.int64)
        self._clock = 0
        self._complete = False

    def take(self, view: StepView, mask: Mask) -> None:
        rows = np.flatnonzero(mask)
        things = view.thing[rows]
        # Of repeated things numpy keeps the last assignment, which is the newest row.
        self._step[things] = view.number
        self._row[things] = rows
        self._site[things] = view.site[rows]
        self._digest[things] = view.columns.digest[rows]
        self._decides[things[~view.context[rows]]] = True
        new, index = np.unique(things, return_index=True)
        unseen = self._first_seen[new] < 0
        self._first_seen[new[unseen]] = self._clock + index[unseen]
        self._clock += len(rows)
        self._complete |= view.is_whole

    def state(self) -> CarriedState:
        things = np.flatnonzero(self._step >= 0)
        things = things[np.argsort(self._first_seen[things])]
        return CarriedState(
            things,
            self._site[things],
            self._step[things],
            self._row[things],
            self._digest[things],
            self._decides[things],
            self._complete,
        )
