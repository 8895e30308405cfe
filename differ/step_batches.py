"""The batches of one trace, step by step, each with whether it was trained on."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from traceparity.differ.batch_rows import BatchRows, PassEnd, SeenBatch
from traceparity.differ.policy import Coverage
from traceparity.differ.sample_ids import SampleIds
from traceparity.differ.step_training import NO_BACKWARD, StepTraining
from traceparity.tracefmt.records import Columns

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

Events = list[tuple[int, SeenBatch | PassEnd]]
"""What a step completes, with the step."""


class StepBatches:
    """Reads the batches of one trace.

    A step in which a batch saw no backward pass waits for the next one: a program may call its
    model for the next batch before it updates.
    """

    def __init__(self, trace: "Trace", coverage: Coverage, ids: SampleIds) -> None:
        self._trace = trace
        self._rows = BatchRows(trace, coverage, ids)
        self._phases = np.array([entry.site.phase for entry in trace.sites], np.int8)
        # Where no update was ever seen, the updates of the run are hidden, or there are none.
        updates = any(not entry.tail for entry in trace.steps)
        self._tails = {entry.number for entry in trace.steps if entry.tail and updates}
        self._training: StepTraining | None = None
        self._events: Events = []
        self._held: Events = []

    @property
    def has_ids(self) -> bool:
        """Whether the trace has any row that tells samples."""
        return self._rows.has_ids

    def take(self, step: int, columns: Columns) -> None:
        """The next chunk of a step."""
        if self._training is None:
            self._training = StepTraining(self._trace, self._phases, tail=step in self._tails)
        self._training.take(columns)
        self._events += [(step, event) for event in self._rows.take(columns)]

    def end_step(self, step: int) -> Events:
        """What is known for certain once a step has no more chunks."""
        training, self._training = self._training, None
        if training is None:
            return []
        events = [*self._events, *((step, event) for event in self._rows.end_step())]
        self._events = []
        ready = self._release(ends_there=not training.resumes and self._next_is(step))
        events = _judged(events, training)
        if _last_reason(events) == NO_BACKWARD:
            self._held = events
            return ready
        return [*ready, *events]

    def finish(self) -> Events:
        """What still waits when the trace has no more steps with batches."""
        last = self._trace.steps[-1].number if self._trace.steps else 0
        return self._release(ends_there=self._next_is(last + 1))

    def _next_is(self, step: int) -> bool:
        return bool(self._held) and self._held[0][0] + 1 == step

    def _release(self, *, ends_there: bool) -> Events:
        held, self._held = self._held, []
        if held and not ends_there:
            at = max(at for at, (_, event) in enumerate(held) if _reason(event))
            step, event = held[at]
            if isinstance(event, SeenBatch):
                held[at] = step, replace(event, trained=True, untrained="")
        return held


def _judged(events: Events, training: StepTraining) -> Events:
    claimed = [
        (at, event)
        for at, (_, event) in enumerate(events)
        if isinstance(event, SeenBatch) and event.trained
    ]
    reasons = training.untrained([(event.loader, event.microbatch) for _, event in claimed])
    for (at, event), reason in zip(claimed, reasons, strict=True):
        if reason:
            events[at] = events[at][0], replace(event, trained=False, untrained=reason)
    return events


def _reason(event: SeenBatch | PassEnd) -> str:
    return event.untrained if isinstance(event, SeenBatch) else ""


def _last_reason(events: Events) -> str:
    batches = [
        event
        for _, event in events
        if isinstance(event, SeenBatch) and (event.trained or event.untrained)
    ]
    return batches[-1].untrained if batches else ""
