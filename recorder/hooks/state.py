"""State: what a step starts from. In full when a root or an optimizer joins, later what changed."""

import random
import sys
from typing import Any

import numpy as np
import torch
import xxhash

from traceparity.recorder.change_log import SMALL, ChangeLog
from traceparity.recorder.hooks.gradients import GradientHooks
from traceparity.recorder.naming import ModuleEntry, innermost, join, live_modules
from traceparity.recorder.observe import storage_of
from traceparity.recorder.recording import Recording, plain_value
from traceparity.tracefmt.records import Flag, Phase

_SETTINGS_LEFT_OUT = frozenset({"training"})


class StateHooks:
    """Parameters, buffers and flags of the root modules."""

    def __init__(self, recording: Recording, log: ChangeLog, gradients: GradientHooks) -> None:
        self._recording = recording
        self._log = log
        self._gradients = gradients
        self._training: dict[str, bool] = {}

    def forget(self, gone: set[str]) -> None:
        """Forget the modes of modules that are gone."""
        for path in gone:
            self._training.pop(path, None)

    def window_opens(self) -> None:
        """Record what each root's next step starts from."""
        if self._recording.idle:
            return
        if self._recording.window.gap:
            for root in self._recording.names.roots:
                root.complete = False
        for root in self._recording.names.live_roots():
            self.root_joined(root)
        self.rng(Phase.STATE)

    def root_joined(self, root: ModuleEntry) -> None:
        """Record a root: in full the first time, then what changed."""
        if self._recording.idle:
            return
        full, root.complete = not root.complete, True
        flags = int(Flag.SNAPSHOT) if full else 0
        members = [(entry, module) for entry, module in live_modules(root)]
        shared = self._values(members, full, flags)
        for entry, module in members:
            self._requires_grad(entry, module, full, flags)
        for name, field, first in shared:
            self._log.plain(Phase.STATE, name, field, first, always=full, flags=flags)
        for entry, module in members:
            if not entry.wrapper:
                training = bool(getattr(module, "training", False))
                self._training[entry.path] = training
                self._log.plain(
                    Phase.STATE, entry.path, "training", training, always=full, flags=flags
                )
        for entry, module in members:
            if not entry.described and not entry.wrapper:
                self._describe(entry, module)

    def owner_found(self, module: torch.nn.Module) -> None:
        """An optimizer holds parameters of a module that was never seen to be called."""
        names = self._recording.names
        known = names.modules.get(id(module))
        entry = names.adopt(module, main=True) if known is None else known
        names.refresh(entry.root)
        if known is None:
            kind = type(innermost(module)).__name__
            why = "which no hook sees (a __call__ of its own, a compiled function)"
            self._recording.writer.not_observed(entry.path, f"calls of {kind}, {why}")
        entry.root.trained = True
        self.root_joined(entry.root)

    def _values(
        self, members: list[tuple[ModuleEntry, torch.nn.Module]], full: bool, flags: int
    ) -> list[tuple[str, str, str]]:
        names = self._recording.names
        shared: list[tuple[str, str, str]] = []
        storages: dict[int, str] = {}
        for entry, module in members:
            for own, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is None:
                    continue
                name = join(entry.path, own)
                new = names.parameter(tensor) is None
                first = names.name_parameter(tensor, name)
                if new and not tensor.is_inference():
                    self._recording.plain(
                        Phase.STATE, name, "writes", tensor._version, Flag.CONTEXT
                    )
                if first != name:
                    shared.append((name, "shared_with", first))
                    continue
                storage = storage_of(tensor)
                if full and storage in storages:
                    shared.append((name, "shares_storage_with", storages[storage]))
                elif storage:
                    storages[storage] = name
                # A write through `.data` bumps no version. Reading again costs a hundredth of a
                # step on a CPU; a device would have to be waited for.
                parameter = own in module._parameters and tensor.device.type == "cpu"
                again = parameter or tensor.nbytes <= SMALL
                self._log.tensor(
                    Phase.STATE, name, "value", tensor, always=full, reread=again, flags=flags
                )
        return shared

    def _requires_grad(
        self, entry: ModuleEntry, module: torch.nn.Module, full: bool, flags: int
    ) -> None:
        for own, parameter in module._parameters.items():
            if parameter is None:
                continue
            name = join(entry.path, own)
            if self._recording.names.parameter(parameter) != name:
                continue
            self._log.plain(
                Phase.STATE, name, "requires_grad", parameter.requires_grad,
                always=full, flags=flags,
            )  # fmt: skip
            if parameter.requires_grad:
                self._gradients.watch(parameter, name)

    def called(self, entry: ModuleEntry, module: torch.nn.Module) -> None:
        """A root is called for training: record what modes changed within the step, if its did."""
        training = bool(getattr(innermost(module), "training", False))
        if self._training.get(entry.path, training) is training:
            return
        for member, inner in live_modules(entry.root):
            training = bool(getattr(inner, "training", False))
            if not member.wrapper and self._training.get(member.path, training) is not training:
                self._recording.plain(
                    Phase.FORWARD, member.path, "training", training, Flag.CONTEXT
                )

    def _describe(self, entry: ModuleEntry, module: torch.nn.Module) -> None:
        entry.described = True
        record = self._recording.plain
        if isinstance(module, torch.jit.ScriptModule):
            inside = "the inside of a TorchScript module"
            self._recording.writer.not_observed(entry.path, inside)
        record(Phase.STATE, entry.path, "class", type(module).__qualname__, Flag.CONTEXT)
        record(Phase.STATE, entry.path, "settings", settings_of(module), Flag.CONTEXT)

    def buffer_changed(self, phase: Phase, name: str, buffer: torch.Tensor) -> None:
        """Record a buffer if it is another than last time."""
        self._log.tensor(phase, name, "value", buffer, reread=buffer.nbytes <= SMALL)

    def buffers(self, phase: Phase) -> None:
        """Record the buffers of all roots that changed since they were last looked at."""
        for root in self._recording.names.live_roots():
            for entry, module in live_modules(root):
                for name, buffer in module._buffers.items():
                    if buffer is not None:
                        self.buffer_changed(phase, join(entry.path, name), buffer)

    def rng(self, phase: Phase) -> None:
        """Record digests of the random number generators, as context."""
        if self._recording.idle:
            return
        for name, value in rng_digests(everything=phase is Phase.STATE):
            self._recording.plain(phase, name, "digest", value, Flag.CONTEXT)


def settings_of(module: torch.nn.Module) -> dict[str, Any]:
    """The plain public attributes of a module: what its constructor set, as far as one can see."""
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name in _SETTINGS_LEFT_OUT:
            continue
        plain = plain_value(value) if not callable(value) else None
        if plain is not None and "<" not in str(plain)[:1]:
            found[name] = plain
    return found


def rng_digests(*, everything: bool) -> list[tuple[str, str]]:
    """``(component, digest)`` of the global generators; reading them draws nothing."""
    found = [("rng.torch", _hex(torch.get_rng_state().numpy().tobytes()))]
    if not everything:
        return found
    if "numpy.random" in sys.modules:
        state = np.random.get_state(legacy=False)
        inner = state["state"]
        found.append(("rng.numpy", _hex(repr(inner["pos"]).encode() + inner["key"].tobytes())))
    version, words, gauss = random.getstate()
    packed = np.array(words, np.uint64).tobytes()
    found.append(("rng.python", _hex(packed + repr((version, gauss)).encode())))
    initialized: Any = torch.cuda.is_initialized
    # While a CUDA graph is captured its generators refuse to be read.
    if initialized() and not torch.cuda.is_current_stream_capturing():
        for index in range(torch.cuda.device_count()):
            device_state = torch.cuda.get_rng_state(index).numpy().tobytes()
            found.append((f"rng.cuda[{index}]", _hex(device_state)))
    return found


def _hex(data: bytes) -> str:
    return str(xxhash.xxh3_64_hexdigest(data))
