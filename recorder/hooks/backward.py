"""Backward: the loss that it starts from, and the buffers that the pass changed."""

from typing import Any

import torch

from traceparity.recorder.guard import inside_backward
from traceparity.recorder.hooks.data import DataHooks
from traceparity.recorder.hooks.gradients import GradientHooks
from traceparity.recorder.hooks.state import StateHooks
from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import Recording
from traceparity.tracefmt.records import Phase


class BackwardHooks:
    """Sees ``torch.autograd.backward``, which ``Tensor.backward`` calls."""

    def __init__(
        self, recording: Recording, state: StateHooks, data: DataHooks, gradients: GradientHooks
    ) -> None:
        self._recording = recording
        self._gradients = gradients
        self._state = state
        self._data = data
        self._depth = 0

    def install(self, patches: Patches) -> None:
        """Begin to see backward passes."""
        patches.around(torch.autograd, "backward", self._before, self._after)

    def _before(self, args: Any, kwargs: Any) -> None:
        self._depth += 1
        if self._depth > 1 or inside_backward():
            return
        recording = self._recording
        recording.window.backward()
        self._data.claim_latest()
        if recording.idle:
            return
        self._gradients.before()
        roots = args[0] if args else kwargs.get("tensors")
        if isinstance(roots, torch.Tensor):
            recording.tensor(Phase.LOSS, "loss", "value", roots)
        else:
            for number, root in enumerate(roots or ()):
                if isinstance(root, torch.Tensor):
                    field = "value" if number == 0 else f"value[{number}]"
                    recording.tensor(Phase.LOSS, "loss", field, root)

    def _after(self, result: Any, args: Any, kwargs: Any) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth or self._recording.idle:
            return
        self._gradients.flush()
        self._state.buffers(Phase.BACKWARD)
        self._recording.window.spill()
