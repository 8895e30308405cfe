"""Gradients of parameters as each backward pass leaves them, and what clipping was told."""

import functools
import itertools
import sys
import weakref
from typing import Any

import torch

from traceparity.recorder.guard import inside_transform
from traceparity.recorder.observe import Summary
from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import Recording, belongs_to, plain_value
from traceparity.recorder.shards import Unobservable
from traceparity.tracefmt.records import Flag, Phase


class GradientHooks:
    """Post-accumulate hooks on parameters."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._watched: dict[int, tuple[Any, Any]] = {}
        self._names: dict[int, str] = {}
        self._summaries: dict[str, Summary] = {}
        self._pending: dict[str, Summary | None] = {}
        self._order: dict[str, int] = {}
        self._held: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._numbers = itertools.count()
        self._hook = recording.guard.hook(self._accumulated, unless=lambda *_: recording.idle)

    def watch(self, parameter: torch.Tensor, name: str) -> None:
        """See the gradient of a parameter each time backward has added to it."""
        key = id(parameter)
        if key in self._watched or not parameter.is_leaf or inside_transform():
            return
        if name not in self._order:
            self._order[name] = next(self._numbers)
        self._names[key] = name
        watched, held, names = self._watched, self._held, self._names

        def forget(_: object) -> None:
            names.pop(key, None)
            watched.pop(key, None)
            held.pop(key, None)

        hook = functools.partial(self._hook, name)
        register: Any = parameter.register_post_accumulate_grad_hook
        handle = register(hook)
        self._watched[key] = (weakref.ref(parameter, forget), handle)

    def remove(self) -> None:
        """Stop."""
        for _, handle in list(self._watched.values()):
            handle.remove()
        self._watched.clear()

    def forget(self, gone: set[str]) -> None:
        """Forget the gradients of the step that ended, and parameters of modules that are gone."""
        self._summaries.clear()
        if gone:
            for name in [name for name in self._order if belongs_to(name, gone)]:
                del self._order[name]

    def last(self, name: str) -> Summary | None:
        """The gradient of a parameter as backward left it in this step."""
        return self._summaries.get(name)

    def hold(self, parameter: torch.Tensor) -> None:
        """Remember the gradient of a parameter, to tell whether a later pass begins with it."""
        gradient = parameter.grad
        if gradient is not None and not gradient.is_inference():
            self._held[id(parameter)] = (weakref.ref(gradient), gradient._version)

    def before(self) -> None:
        """A backward begins: record what the gradients hold that it will add to."""
        counts = {"none": 0, "zero": 0, "kept": 0, "unknown": 0}
        first_kept = ""
        for key, (parameter, _) in list(self._watched.items()):
            held = self._holds(key, parameter())
            counts[held] += 1
            if held == "kept" and not first_kept:
                first_kept = self._names.get(key, "")
        said = {**counts, "first_kept": first_kept}
        self._recording.plain(Phase.BACKWARD, "gradients", "before", said, Flag.CONTEXT)

    def _holds(self, key: int, parameter: torch.Tensor | None) -> str:
        gradient = None if parameter is None else parameter.grad
        if gradient is None:
            return "none"
        if gradient.device.type == "cpu" and gradient.layout is torch.strided:
            # Zeros written through `.data` count as no version, so the gradient itself is asked.
            return "kept" if bool(gradient.detach().any()) else "zero"
        known = self._held.get(key)
        same = known is not None and known[0]() is gradient and known[1] == gradient._version
        # A device would have to be waited for to see what was written since.
        return "kept" if same else "unknown"

    def _accumulated(self, name: str, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        if gradient is None:
            self._pending[name] = None
            return
        self.hold(parameter)
        try:
            summary = self._recording.observer.summary(gradient)
        except Unobservable as what:
            self._recording.writer.not_observed(name, f"its gradient is {what}")
            return
        self._summaries[name] = self._pending[name] = summary

    def flush(self) -> None:
        """Record the gradients of the pass that ended, in the order of the parameters.

        They are a set: autograd's order would name the last layer wherever all of them differ.
        """
        recording = self._recording
        for name in sorted(self._pending, key=lambda name: self._order.get(name, 0)):
            summary = self._pending[name]
            if summary is None:
                recording.plain(Phase.BACKWARD, name, "grad", None)
            else:
                site = recording.site(Phase.BACKWARD, name, "grad")
                recording.summary(Phase.BACKWARD, site, summary)
        self._pending.clear()


def install_clipping(recording: Recording, patches: Patches) -> None:
    """See total norm and limit of ``clip_grad_norm_`` and ``clip_grad_value_``, as context."""

    def norm_clipped(result: Any, args: Any, kwargs: Any) -> None:
        if recording.idle:
            return
        limit = kwargs.get("max_norm", args[1] if len(args) > 1 else None)
        flag = Flag.CONTEXT
        recording.value(Phase.GRADIENT, "clip_grad_norm_", "total_norm", result, flag)
        recording.plain(Phase.GRADIENT, "clip_grad_norm_", "max_norm", plain_value(limit), flag)

    def value_clipped(result: Any, args: Any, kwargs: Any) -> None:
        if recording.idle:
            return
        limit = kwargs.get("clip_value", args[1] if len(args) > 1 else None)
        recording.plain(
            Phase.GRADIENT, "clip_grad_value_", "clip_value", plain_value(limit), Flag.CONTEXT
        )

    # The module is found by name, since its package hides it behind a function on some versions.
    for holder in (torch.nn.utils, sys.modules["torch.nn.utils.clip_grad"]):
        patches.after(holder, "clip_grad_norm_", norm_clipped)
        patches.after(holder, "clip_grad_value_", value_clipped)
