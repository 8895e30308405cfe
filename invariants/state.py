"""State: the values that stay until they change, carried from step to step."""

from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Carried:
    """What is known of a run at one moment: the last news of each thing.

    Arrays are indexed by the numbers of `Names`; they grow with it. Read only, and only until the
    next step is read.

    Attributes:
        digest: ``(tensors, 2)`` digest of each parameter and buffer.
        known: Which tensors have been told of.
        is_parameter: Which of them are parameters rather than buffers.
        requires_grad: Which parameters require gradients.
        training: ``(modules,)`` 1 for train mode, 0 for eval mode, -1 unknown.
        group: Group of each parameter by tensor number, ``optimizer[0] group[1]``.
        shared_with: For further names of tied tensors: the first name.
        hyperparameters: By group, then by key.
        classes: Class of each module, optimizer and scheduler.
        settings: Constructor-like attributes of each module and scheduler.
        counters: ``scheduler.last_epoch``, ``scaler.scale`` and the like.
    """

    def __init__(self) -> None:
        self.digest: npt.NDArray[np.uint64] = np.zeros((0, 2), np.uint64)
        self.known: Mask = np.zeros(0, bool)
        self.is_parameter: Mask = np.zeros(0, bool)
        self.requires_grad: Mask = np.zeros(0, bool)
        self.training: npt.NDArray[np.int8] = np.zeros(0, np.int8)
        self.group: dict[int, str] = {}
        self.shared_with: dict[str, str] = {}
        self.hyperparameters: dict[str, dict[str, Any]] = {}
        self.classes: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        self.counters: dict[str, Any] = {}

    def grow(self, tensors: int, modules: int) -> None:
        """Make room for more tensors and modules."""
        more = tensors - len(self.known)
        if more > 0:
            self.digest = np.concatenate([self.digest, np.zeros((more, 2), np.uint64)])
            self.known = np.concatenate([self.known, np.zeros(more, bool)])
            self.is_parameter = np.concatenate([self.is_parameter, np.zeros(more, bool)])
            self.requires_grad = np.concatenate([self.requires_grad, np.zeros(more, bool)])
        more = modules - len(self.training)
        if more > 0:
            self.training = np.concatenate([self.training, np.full(more, -1, np.int8)])


def different(numbers: npt.NDArray[Any]) -> Ids:
    """The different ones among small numbers from 0, sorted.

    `numpy.unique` would, for nothing, import numpy's masked arrays, which takes as long as ten
    steps take to judge.
    """
    return np.flatnonzero(np.bincount(numbers.astype(np.int64, copy=False)))
