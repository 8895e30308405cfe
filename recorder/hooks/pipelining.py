"""Pipelines: a stage of `torch.distributed.pipelining` tries its module out to learn shapes.

It calls the module on memory that nothing was written to, so what comes of it is other in each run,
and no part of the training.
"""

import functools
from types import ModuleType
from typing import Any

import torch

from traceparity.recorder.guard import Guard
from traceparity.recorder.late_import import when_imported
from traceparity.recorder.patches import Patches, leave_no_frame

_MODULE = "torch.distributed.pipelining.stage"
_STAGE = "PipelineStage"
_TRIALS = ("_forward_metadata_inference", "_backward_metadata_inference")


def install(patches: Patches, guard: Guard) -> None:
    """Begin to leave the trials out, of pipelines that are in use or will be."""
    if torch.distributed.is_available():
        patches.on_undo(when_imported(_MODULE, functools.partial(_imported, patches, guard)))


def _imported(patches: Patches, guard: Guard, module: ModuleType) -> None:
    stage = getattr(module, _STAGE, None)
    for name in _TRIALS:
        if hasattr(stage, name):
            patches.replace(stage, name, functools.partial(_silent, guard))


def _silent(guard: Guard, trial: Any) -> Any:
    @functools.wraps(trial)
    def silent(*args: Any, **kwargs: Any) -> Any:
        try:
            with guard.silence():
                return trial(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise

    return silent
