"""Leaves: the tensors and plain values inside the arguments of a call or inside a batch."""

from collections.abc import Iterator
from typing import Any

import torch

from traceparity.recorder.recording import is_plain

MAX_DEPTH = 6
MAX_LEAVES = 512


def leaves(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield ``(path, leaf)`` for each tensor and plain value in nested tuples, lists and dicts.

    Objects of other classes are looked into only if they are mappings or dataclass-like outputs
    with ``items()`` (as Hugging Face's model outputs are); anything else has no leaves.
    """
    if isinstance(value, torch.Tensor) or is_plain(value):
        yield path, value
    elif depth >= MAX_DEPTH:
        return
    elif isinstance(value, torch.nn.utils.rnn.PackedSequence):
        yield f"{path}[data]", value.data
        yield f"{path}[batch_sizes]", value.batch_sizes
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key}]", depth + 1)
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        for key, item in zip(names, value[:MAX_LEAVES], strict=False):
            yield from leaves(item, f"{path}[{key}]", depth + 1)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of a value."""
    return [leaf for _, leaf in leaves(value, "") if isinstance(leaf, torch.Tensor)]
