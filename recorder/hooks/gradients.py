"""Gradients of parameters as each backward pass leaves them, and what clipping was told."""

import functools
import sys
import weakref
from typing import Any

import torch

from traceparity.recorder.observe import Summary, Unobservable
from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import Recording, plain_value
from traceparity.tracefmt.records import Flag, Phase


class GradientHooks:
    """Post-accumulate hooks on parameters."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._watched: dict[int, tuple[Any, Any]] = {}
        self._summaries: dict[str, Summary] = {}
        self._pending: dict[str, Summary | None] = {}
        self._order: dict[str, int] = {}
        self._hook = recording.guard.hook(self._accumulated)

    def watch(self, parameter: torch.Tensor, name: str) -> None:
        """See the gradient of a parameter each time backward has added to it."""
        key = id(parameter)
        if key in self._watched or not parameter.is_leaf:
            return
        self._order.setdefault(name, len(self._order))
        watched = self._watched

        def forget(_: object) -> None:
            watched.pop(key, None)

        hook = functools.partial(self._hook, name)
        register: Any = parameter.register_post_accumulate_grad_hook
        handle = register(hook)
        self._watched[key] = (weakref.ref(parameter, forget), handle)

    def remove(self) -> None:
        """Stop."""
        for _, handle in list(self._watched.values()):
            handle.remove()
        self._watched.clear()

    def forget(self) -> None:
        """Forget the gradients of the step that ended."""
        self._summaries.clear()

    def last(self, name: str) -> Summary | None:
        """The gradient of a parameter as backward left it in this step."""
        return self._summaries.get(name)

    def _accumulated(self, name: str, parameter: torch.Tensor) -> None:
        if self._recording.idle:
            return
        gradient = parameter.grad
        if gradient is None:
            self._pending[name] = None
            return
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
        for name in sorted(self._pending, key=self._order.__getitem__):
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
