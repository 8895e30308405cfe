"""Checkpoints: that something was saved or loaded, as context of the next step."""

from typing import Any

import torch

from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import Recording


def install(recording: Recording, patches: Patches) -> None:
    """See ``load_state_dict``, ``torch.save`` and ``torch.load``."""

    def loaded(result: Any, args: Any, kwargs: Any) -> None:
        recording.marker("checkpoint", "load_state_dict", type(args[0]).__name__)

    def saved(result: Any, args: Any, kwargs: Any) -> None:
        recording.marker("checkpoint", "save", True)

    def read(result: Any, args: Any, kwargs: Any) -> None:
        recording.marker("checkpoint", "load", True)

    patches.after(torch.nn.Module, "load_state_dict", loaded)
    patches.after(torch.optim.Optimizer, "load_state_dict", loaded)
    patches.after(torch, "save", saved)
    patches.after(torch, "load", read)
