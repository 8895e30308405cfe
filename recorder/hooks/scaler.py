"""The gradient scaler: its scale and counters, and the updates that it leaves out."""

from typing import Any

# From where it is defined: a program may have put something else into torch.amp.
from torch.amp.grad_scaler import GradScaler

from traceparity.recorder.change_log import ChangeLog
from traceparity.recorder.hooks.optimizers import OptimizerHooks
from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import Recording
from traceparity.recorder.registry import Registry
from traceparity.tracefmt.records import Flag, Phase


class ScalerHooks:
    """Sees ``GradScaler.step``."""

    def __init__(self, recording: Recording, log: ChangeLog, optimizers: OptimizerHooks) -> None:
        self._recording = recording
        self._log = log
        self._optimizers = optimizers
        self._registry = Registry("scaler", always_number=False)
        self._steps_before = 0
        self._seen: set[str] = set()

    def install(self, patches: Patches) -> None:
        """Begin to see scalers."""

        def constructed(result: Any, args: Any, kwargs: Any) -> None:
            self._registry.add(args[0])

        patches.after(GradScaler, "__init__", constructed)
        patches.around(GradScaler, "step", self._before, self._after)

    def _before(self, args: Any, kwargs: Any) -> None:
        if self._registry.meet(args[0]):
            # It is older than the recording.
            self.window_opens()
        self._steps_before = self._optimizers.steps

    def _after(self, result: Any, args: Any, kwargs: Any) -> None:
        optimizer = args[1] if len(args) > 1 else kwargs.get("optimizer")
        if optimizer is not None and self._optimizers.steps == self._steps_before:
            self._optimizers.skipped(optimizer)

    def take_gone(self) -> set[str]:
        """The names of scalers that died since this was last asked; they are forgotten."""
        gone = self._registry.take_gone()
        self._seen -= gone
        return gone

    def window_opens(self) -> None:
        """Record scale and growth tracker of each scaler in use."""
        if self._recording.idle:
            return
        for scaler in self._registry.live():
            if not scaler.is_enabled():
                continue
            name = self._registry.name(scaler)
            full = name not in self._seen or self._recording.window.gap
            self._seen.add(name)
            flags = int(Flag.SNAPSHOT) if full else 0
            numbers = {
                "scale": float(scaler.get_scale()),
                "growth_tracker": int(scaler._get_growth_tracker()),
            }
            for key, value in numbers.items():
                self._log.plain(
                    Phase.STATE, f"{name}.{key}", "value", value, always=full, flags=flags
                )
