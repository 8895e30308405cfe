"""Schedulers: their counters, the metric they are given, and the rates that come out."""

import gc
import inspect
from typing import Any

import torch
from torch.optim import lr_scheduler

from traceparity.recorder.change_log import ChangeLog
from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import Recording, is_plain, one_number, plain_value
from traceparity.recorder.registry import Registry
from traceparity.tracefmt.records import Flag, Phase

_FROM_METRIC = frozenset({"best", "mode_worse"})
"""Counters that are the metric again: like it they explain, and the rates that result decide."""


class SchedulerHooks:
    """Sees the outermost ``step`` of each scheduler; constructors and inner steps do not count."""

    def __init__(self, recording: Recording, log: ChangeLog, optimizers: Registry) -> None:
        self._recording = recording
        self._log = log
        self._optimizers = optimizers
        self.registry = Registry("scheduler", always_number=False)
        self._depth = 0
        self._described: set[str] = set()

    def install(self, patches: Patches) -> None:
        """Begin to see scheduler steps."""
        base = lr_scheduler.LRScheduler
        self._patches = patches
        for kind in (base, *_subclasses(base)):
            self._watch_class(kind)
        patches.after(base, "__init_subclass__", self._subclassed)
        patches.around(base, "_initial_step", self._enter, self._leave_construction)

    def _subclassed(self, result: Any, args: Any, kwargs: Any) -> None:
        known = {id(holder) for holder, *_ in self._patches.replaced}
        for kind in _subclasses(lr_scheduler.LRScheduler):
            if id(kind) not in known:
                self._watch_class(kind)

    def _watch_class(self, kind: Any) -> None:
        if "step" in vars(kind):
            self._patches.around(kind, "step", self._enter, self._stepped)
        if "__init__" in vars(kind):
            self._patches.around(kind, "__init__", self._enter, self._leave_construction)

    def _enter(self, args: Any, kwargs: Any) -> None:
        self._depth += 1

    def _leave_construction(self, result: Any, args: Any, kwargs: Any) -> None:
        self._depth -= 1
        if hasattr(args[0], "optimizer"):
            self.registry.add(args[0])

    def _stepped(self, result: Any, args: Any, kwargs: Any) -> None:
        self._depth -= 1
        scheduler = args[0]
        self.registry.add(scheduler)
        window = self._recording.window
        if self._depth or self._recording.idle or not window.open:
            # Before the first window the state of the next one will show the result.
            return
        metric = args[1] if len(args) > 1 else kwargs.get("metrics")
        name = self.registry.name(scheduler)
        if metric is not None:
            # Ranks may each have their own: what comes of it is the rates.
            self._recording.value(Phase.SCHEDULER, name, "metric", metric, Flag.CONTEXT)
        optimizer = getattr(scheduler, "optimizer", None)
        if optimizer is not None:
            owner = self._optimizers.name(optimizer)
            for number, group in enumerate(optimizer.param_groups):
                self._log.value(
                    Phase.SCHEDULER, f"{owner} group[{number}]", "lr", one_number(group.get("lr")),
                    always=True,
                )  # fmt: skip
        self._counters(Phase.SCHEDULER, scheduler, name, always=True, flags=0)

    def elder_found(self, optimizer: Any) -> None:
        """An optimizer steps that was made before the recording began: so were its schedulers.

        Those of optimizers that never step are left over from an earlier training.
        """
        # By type: asking an object for its class may run code of the program.
        for each in gc.get_objects():
            schedules = issubclass(type(each), lr_scheduler.LRScheduler)
            if schedules and getattr(each, "optimizer", None) is optimizer:
                self.registry.add(each)
        self.window_opens()

    def take_gone(self) -> set[str]:
        """The names of schedulers that died since this was last asked; they are forgotten."""
        gone = self.registry.take_gone()
        self._described -= gone
        return gone

    def window_opens(self) -> None:
        """Record the counters of all schedulers."""
        if self._recording.idle:
            return
        if self._recording.window.gap:
            self._described.clear()
        for scheduler in self.registry.live():
            name = self.registry.name(scheduler)
            full = name not in self._described
            flags = int(Flag.SNAPSHOT) if full else 0
            self._counters(Phase.STATE, scheduler, name, always=full, flags=flags)
            if full:
                self._described.add(name)
                record = self._recording.plain
                record(Phase.STATE, name, "class", type(scheduler).__name__, Flag.CONTEXT)
                settings = dict(scheduler_numbers(scheduler, settings=True))
                record(Phase.STATE, name, "settings", settings, Flag.CONTEXT)

    def _counters(
        self, phase: Phase, scheduler: Any, name: str, *, always: bool, flags: int
    ) -> None:
        for key, value in scheduler_numbers(scheduler, settings=False):
            extra = Flag.CONTEXT if key in _FROM_METRIC else 0
            self._log.plain(
                phase, f"{name}.{key}", "value", value, always=always, flags=flags | extra
            )


def scheduler_numbers(scheduler: Any, *, settings: bool) -> list[tuple[str, Any]]:
    """The public plain attributes of a scheduler: constructor settings, or all others (counters).

    ``last_epoch`` is a constructor argument of most, yet counts.
    """
    try:
        arguments = set(inspect.signature(type(scheduler).__init__).parameters) - {"last_epoch"}
    except (TypeError, ValueError):
        arguments = set()
    found = []
    for key, value in vars(scheduler).items():
        if key.startswith("_") or (key in arguments) != settings:
            continue
        if is_plain(value) or (isinstance(value, list) and all(map(is_plain, value))):
            found.append((key, plain_value(value)))
        elif isinstance(value, torch.Tensor) and value.numel() == 1:
            found.append((key, one_number(value)))
    return found


def _subclasses(kind: Any) -> list[Any]:
    found = []
    for child in kind.__subclasses__():
        if child not in found:
            found += [child, *_subclasses(child)]
    return list(dict.fromkeys(found))
