"""The loss of a window, from the losses of its micro-batches as the policy declares it."""

import re
from collections.abc import Sequence

import numpy as np

from traceparity.differ.left_out import LeftOut
from traceparity.differ.metrics import widened
from traceparity.differ.observation import numpy_dtype
from traceparity.differ.policy import Align
from traceparity.differ.window_rows import Group, WindowRows
from traceparity.tracefmt.records import Phase

_COUNTED = re.compile(r"(.+?)\s*!=\s*(-?\d+)")


class LossRelation:
    """How micro-batch losses come to one loss.

    Raises:
        ValueError: What a micro-batch weighs is declared in no known way.
    """

    def __init__(self, align: Align) -> None:
        """Take the declaration: ``loss`` and, for weights, ``loss_weight``."""
        self.word = align.loss
        self._weight = align.loss_weight

    @property
    def adds_up(self) -> bool:
        """Whether gradients add up as they are, because the losses do."""
        return self.word in ("sum", "skip")

    def combine(self, window: WindowRows, group: Group, scale: float) -> bytes | LeftOut:
        """The bytes of the combined loss, in the dtype that the losses have; or why there is none.

        Args:
            window: The window.
            group: The rows of one root, in every micro-batch.
            scale: What a gradient scaler multiplied the losses by.
        """
        arrays = [window.array(row) for row in group.rows.values()]
        dtype = numpy_dtype(window.dtype(group.first))
        if dtype is None or any(array is None or array.size != 1 for array in arrays):
            return LeftOut.SHAPE
        values = [
            widened(array).reshape(()).item() / scale for array in arrays if array is not None
        ]
        if self.word == "weighted":
            weights = micro_batch_weights(window, self._weight) if len(values) > 1 else [1.0]
            if isinstance(weights, LeftOut):
                return weights
            if len(weights) != len(values) or not sum(weights):
                return LeftOut.WEIGHTS
            total = sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)
        else:
            total = sum(values) / (len(values) if self.word == "mean" else 1)
        with np.errstate(all="ignore"):
            return np.array(total).astype(dtype).tobytes()


def micro_batch_weights(window: WindowRows, declared: str) -> Sequence[float] | LeftOut:
    """What each micro-batch weighs; or why the trace does not tell."""
    if declared == "samples":
        return window.sizes or LeftOut.WEIGHTS
    counted = _COUNTED.fullmatch(declared)
    name = counted[1] if counted else declared
    for _, group in window.of_phase(Phase.DATA, name):
        if len(group.rows) != window.count:
            return LeftOut.NO_FIELD
        weights = [
            _weight(window, row, counted[2] if counted else None) for row in group.rows.values()
        ]
        known = [weight for weight in weights if weight is not None]
        return known if len(known) == len(weights) else LeftOut.WEIGHTS
    return LeftOut.NO_FIELD


def _weight(window: WindowRows, row: int, other_than: str | None) -> float | None:
    if window.is_tensor(row):
        elements = window.array(row)
        if elements is None:
            return None
    else:
        elements = np.array(window.plain(row))
        if elements.dtype.kind not in "biuf":
            return None
    if other_than is not None:
        return float((elements != int(other_than)).sum())
    return float(widened(elements).sum())
