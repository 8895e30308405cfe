"""Updates that no optimizer's hook tells of: weights written by hand, or by an odd optimizer.

An update is where a backward pass was followed by changed parameters. While the process has not
seen an optimizer step, the parameters of a root are therefore read again each time the root is
called for training. Once an optimizer has stepped, its hooks are believed and nothing is read.
"""

import weakref
from collections.abc import Iterator
from typing import NamedTuple

import torch

from traceparity.recorder.change_log import ChangeLog
from traceparity.recorder.hooks.optimizers import OptimizerHooks
from traceparity.recorder.naming import ModuleEntry, join, live_modules
from traceparity.recorder.recording import Recording
from traceparity.recorder.shards import Unobservable
from traceparity.tracefmt.records import Flag, Phase

_HELD_CHANGES = 2
"""Passes that must change the parameters of an optimizer that has not stepped yet: the first half
of a two-step optimizer, such as SAM, also writes to them."""


class _Value(NamedTuple):
    tensor: weakref.ref[torch.Tensor]
    digest: bytes


class _Change(NamedTuple):
    name: str
    tensor: torch.Tensor


class ManualUpdates:
    """Compares parameters from one training call of a root to its next."""

    def __init__(self, recording: Recording, log: ChangeLog, optimizers: OptimizerHooks) -> None:
        self._recording = recording
        self._log = log
        self._optimizers = optimizers
        self._known: dict[str, _Value] = {}
        self._held_changes = 0

    def before_training(self, root: ModuleEntry) -> None:
        """A root is about to be called for training."""
        if self._optimizers.steps:
            self._known.clear()
            return
        if not self._recording.window.in_step:
            self._look([root], may_be_replaced=True)

    def finish(self) -> None:
        """The program ends."""
        if not self._optimizers.steps:
            # A functional call puts other tensors in place of the parameters while it lasts.
            self._look(self._recording.names.live_roots(), may_be_replaced=False)

    def _look(self, roots: list[ModuleEntry], *, may_be_replaced: bool) -> None:
        changes = []
        window = self._recording.window
        waits, begun = window.awaits_update, window.open and not window.updated
        for root in roots:
            for name, tensor in _parameters(root):
                known = self._known.get(name)
                if known is not None and begun and not waits:
                    continue
                if known is not None and not may_be_replaced and known.tensor() is not tensor:
                    continue
                try:
                    digest = self._recording.observer.fingerprint(tensor)
                except Unobservable:
                    continue
                self._known[name] = _Value(weakref.ref(tensor), digest)
                if waits and known is not None and known.digest != digest:
                    changes.append(_Change(name, tensor))
        if changes and self._is_update(changes):
            self._update(changes)

    def _is_update(self, changes: list[_Change]) -> bool:
        names = self._recording.names
        held = {
            id(parameter): names.parameter(parameter)
            for optimizer in self._optimizers.registry.live()
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        # Under the name of a parameter that an optimizer holds, another tensor is a passing one.
        held_names = set(held.values())
        if any(change.name not in held_names for change in changes):
            return True
        if any(id(change.tensor) in held for change in changes):
            self._held_changes += 1
        return self._held_changes >= _HELD_CHANGES

    def _update(self, changes: list[_Change]) -> None:
        recording = self._recording
        if not recording.idle:
            told = "changed parameters"
            recording.plain(Phase.OPTIMIZER, "update", "seen_by", told, Flag.CONTEXT)
            for name, tensor in changes:
                self._log.tensor(Phase.OPTIMIZER, name, "value", tensor, always=True, reread=True)
        recording.window.update()


def _parameters(root: ModuleEntry) -> Iterator[tuple[str, torch.Tensor]]:
    for entry, module in live_modules(root):
        for own, parameter in module._parameters.items():
            if parameter is not None:
                yield join(entry.path, own), parameter
