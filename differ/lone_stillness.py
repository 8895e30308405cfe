"""A run that trains beside one that does not: a difference that a tolerance would take in.

Small updates stay within a tolerance of no update at all. Yet parameters that are bit-equal after
every update although they have gradients, where the other run's change, tell of another kind of
run: its updates are dead, or undone before the next step begins.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from traceparity.differ.metrics import measure
from traceparity.differ.observation import Observation
from traceparity.differ.result import Divergence, Evidence
from traceparity.differ.sites import JointSites
from traceparity.differ.step_pair import Side
from traceparity.differ.step_view import StepView, number_after
from traceparity.tracefmt.records import Kind, Phase

_FEWEST = 2
"""Updates without effect that are no chance."""
_CHOICES = ("phases", "include", "exclude")
"""Options of a recording under which silence does not mean that a parameter stays as it is."""


class _Track:
    """The parameters of one side while its steps go by.

    Attributes:
        side: The trace.
        first: Digest of each parameter before the first update that was followed.
        moved: Of each update the parameters that it changed, undone ones left out.
    """

    def __init__(self, side: Side) -> None:
        self.side = side
        self.first: dict[int, bytes] = {}
        self.moved: list[list[int]] = []
        self._now: dict[int, bytes] = {}
        self._before: dict[int, bytes] = {}
        self._sought: set[int] = set()
        self._number: int | None = None
        self._touched = False
        self._undone = 0

    def begin(self, number: int) -> None:
        """Go to the start of a step."""
        if self._number is not None and number != self._number + 1:
            self.settle()
            self._now.clear()
            self._sought.clear()
        view = self.side.steps[number]
        self._take(view, before_update=True)
        self.settle()
        self._number = number

    def known(self, things: Iterable[int]) -> list[int]:
        """Those of some things whose value at the start of the step is known."""
        assert self._number is not None
        wanted = list(things)
        if unknown := [thing for thing in wanted if thing not in self._now.keys() | self._sought]:
            # What was not told of before is told of when it changes: it is looked for once.
            self._sought.update(unknown)
            for thing, place in self.side.carry.find(unknown, self._number).places.items():
                self._now[thing] = self.side.carry.observation(place).digest
        return [thing for thing in wanted if thing in self._now]

    def update(self, things: Collection[int]) -> None:
        """Go to the end of the step, which updates some things, or none."""
        assert self._number is not None
        self._before = {thing: self._now[thing] for thing in things}
        self.first = self._before | self.first
        self._take(self.side.steps[self._number], before_update=False)
        self._touched = bool(self._changes())

    def settle(self, *, ended: bool = False) -> None:
        """Note what the last update changed, as it is now; ``ended`` if no step follows it."""
        if self._before:
            changes = self._changes()
            self._undone += self._touched and not changes
            # After the last update nobody sees that it is undone as all others were.
            always = ended and self._undone > 0 and self._undone == len(self.moved)
            self.moved.append([] if always else changes)
        self._before = {}

    def _changes(self) -> list[int]:
        return [thing for thing, was in self._before.items() if self._now[thing] != was]

    def _take(self, view: StepView, *, before_update: bool) -> None:
        mask = view.stateful & (view.columns.kind == Kind.TENSOR)
        mask &= (view.phase == Phase.STATE) == before_update
        for thing, row in view.last_rows(mask).items():
            self._now[thing] = view.columns.digest[row].tobytes()


@dataclass(frozen=True)
class LoneStillness:
    """Looks for a side that trains nothing beside one that does.

    Attributes:
        rank: Of which process.
        sites: The joint table.
        reference: The reference's trace.
        target: The target's trace.
    """

    rank: int
    sites: JointSites
    reference: Side
    target: Side

    def find(self, pairs: Collection[tuple[int, int]]) -> Divergence | None:
        """The first update without effect, if one side alone has no other ones.

        It ends as soon as both sides are seen to train, mostly after one step.
        """
        for side in (self.reference, self.target):
            if any(side.trace.header.capture.get(choice) for choice in _CHOICES):
                return None
        tracks = _Track(self.reference), _Track(self.target)
        updates = []
        for pair in pairs:
            for track, number in zip(tracks, pair, strict=True):
                track.begin(number)
            if all(any(track.moved) for track in tracks):
                return None
            updated = things = self._updated(pair)
            for track in tracks:
                things = track.known(things)
            if updated and not things:
                # A recording that does not tell the parameters leaves nothing to follow.
                return None
            if things:
                updates.append(pair)
            for track in tracks:
                track.update(things)
        for track in tracks:
            track.settle(ended=True)
        for still, other in (tracks[::-1], tracks):
            moving = sum(map(bool, other.moved))
            if len(updates) >= _FEWEST and not any(still.moved) and 2 * moving > len(updates):
                return self._divergence(updates, still, other)
        return None

    def _updated(self, pair: tuple[int, int]) -> list[int]:
        """Parameters that both sides update in a pair of steps, with gradients that are not 0."""
        views = self.reference.steps[pair[0]], self.target.steps[pair[1]]
        if any(self._left_out(view) for view in views):
            return []
        found = [self._with_gradient(view) for view in views]
        return [thing for thing in found[0] if thing in found[1]]

    def _left_out(self, view: StepView) -> bool:
        rows = np.flatnonzero((view.phase == Phase.OPTIMIZER) & (view.columns.kind == Kind.MARKER))
        fields = {self.sites.things[thing][1] for thing in view.thing[rows].tolist()}
        return bool(fields & {"skipped", "raised"})

    def _with_gradient(self, view: StepView) -> dict[int, None]:
        rows = (view.phase == Phase.GRADIENT) & ~view.context & (view.columns.stats[:, 2] > 0)
        names = [self.sites.things[thing] for thing in view.thing[np.flatnonzero(rows)].tolist()]
        things = (self.sites.thing(name, "value") for name, field in names if field == "grad")
        return {thing: None for thing in things if thing is not None and self._counts(thing)}

    def _counts(self, thing: int) -> bool:
        site = self.sites.number(Phase.OPTIMIZER, *self.sites.things[thing])
        return site is not None and not self.sites.rule(site).ignore

    def _divergence(
        self, updates: list[tuple[int, int]], still: _Track, other: _Track
    ) -> Divergence:
        at = next(number for number, things in enumerate(other.moved) if things)
        step, target_step = updates[at]
        thing = other.moved[at][0]
        own_step = target_step if still.side is self.target else step
        after = still.side.carry.find([thing], own_step + 1).places[thing]
        undone = still.side.carry.observation(after).digest != still.first[thing]
        if undone:
            step, target_step = step + 1, target_step + 1
        component, field = self.sites.things[thing]
        phase = Phase.STATE if undone else Phase.OPTIMIZER
        site = self.sites.number(Phase.OPTIMIZER, component, field)
        assert site is not None
        location, target_location = (
            side.steps.location(site) for side in (self.reference, self.target)
        )
        reference = _value(self.reference, step, thing, at_start=undone)
        target = _value(self.target, target_step, thing, at_start=undone)
        return Divergence(
            rank=self.rank,
            step=step,
            target_step=target_step,
            microbatch=0,
            call=0,
            phase=phase.label,
            component=component,
            field=field,
            kind="value",
            reference=reference,
            target=target,
            metrics=measure(reference, target),
            location=location or target_location,
            target_location=target_location,
            reference_name=self.sites.reference_name(site),
            order=number_after(phase),
            evidence=(self._evidence(len(updates), still, other, undone=undone),),
        )

    def _evidence(self, count: int, still: _Track, other: _Track, *, undone: bool) -> Evidence:
        names = ("target", "reference") if still.side is self.target else ("reference", "target")
        how = (
            "what its updates change is undone before the next step"
            if undone
            else "its updates change nothing"
        )
        moving = sum(map(bool, other.moved))
        detail = (
            f"no parameter of the {names[0]} changes in any of {count} updates, though gradients "
            f"are not zero: {how}; those of the {names[1]} change in {moving}"
        )
        return Evidence("update", False, detail)


def _value(side: Side, number: int, thing: int, *, at_start: bool) -> Observation:
    """The value of a thing at the start of a step or at its end."""
    if at_start:
        view = side.steps[number]
        rows = view.last_rows((view.phase == Phase.STATE) & view.stateful & (view.thing == thing))
        if thing in rows:
            return view.observation(rows[thing])
    place = side.carry.find([thing], number if at_start else number + 1).places[thing]
    return side.carry.observation(place)
