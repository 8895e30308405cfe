"""Backward: the loss that it starts from, and the buffers that the pass changed."""

from typing import Any

import torch

from traceparity.recorder.guard import inside_backward, inside_transform
from traceparity.recorder.hooks.data import DataHooks
from traceparity.recorder.hooks.gradients import GradientHooks
from traceparity.recorder.hooks.optimizers import OptimizerHooks
from traceparity.recorder.hooks.state import StateHooks
from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import Recording
from traceparity.tracefmt.records import Phase


class BackwardHooks:
    """Sees ``torch.autograd``'s ``backward``, which ``Tensor.backward`` calls, and ``grad``."""

    def __init__(
        self,
        recording: Recording,
        state: StateHooks,
        data: DataHooks,
        gradients: GradientHooks,
        optimizers: OptimizerHooks,
    ) -> None:
        self._recording = recording
        self._optimizers = optimizers
        self._gradients = gradients
        self._state = state
        self._data = data
        self._depth = 0

    def install(self, patches: Patches) -> None:
        """Begin to see backward passes."""
        patches.around(torch.autograd, "backward", self._before, self._after)
        patches.around(torch.autograd, "grad", self._before_grad, self._after_grad)

    def _before(self, args: Any, kwargs: Any) -> None:
        self._depth += 1
        if self._depth > 1 or inside_backward():
            return
        self._begins(args[0] if args else kwargs.get("tensors"), accumulates=True)

    def _begins(self, roots: Any, *, accumulates: bool) -> None:
        recording = self._recording
        self._optimizers.settle()
        recording.window.backward()
        self._data.claim_latest()
        if recording.idle:
            return
        if accumulates:
            self._gradients.before()
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

    # -- torch.autograd.grad ------------------------------------------------------------------

    def _before_grad(self, args: Any, kwargs: Any) -> None:
        self._depth += 1
        if self._depth == 1 and self._of_parameters(args, kwargs):
            self._begins(args[0] if args else kwargs.get("outputs"), accumulates=False)

    def _after_grad(self, result: Any, args: Any, kwargs: Any) -> None:
        self._depth = max(0, self._depth - 1)
        recording = self._recording
        if self._depth or result is None or recording.idle:
            return
        for name, gradient in zip(self._of_parameters(args, kwargs), result, strict=False):
            if name is not None:
                recording.value(Phase.BACKWARD, name, "grad", gradient)

    def _of_parameters(self, args: Any, kwargs: Any) -> list[str | None]:
        """The names of what is differentiated for, if this is a pass that an update may follow.

        A graph of the gradients is made to go on with (a penalty, a derivative in the loss).
        """
        further = kwargs.get("create_graph", args[4] if len(args) > 4 else False)
        if further or inside_backward() or inside_transform():
            return []
        inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
        inputs = [inputs] if isinstance(inputs, torch.Tensor) else [*(inputs or ())]
        names = [
            self._recording.names.parameter(each) if isinstance(each, torch.Tensor) else None
            for each in inputs
        ]
        return names if any(name is not None for name in names) else []
