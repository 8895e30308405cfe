"""Marks on the tensors of a run, which are numbered as they come into view."""

import numpy as np
import numpy.typing as npt

from traceparity.invariants.state import Ids


class Marks:
    """One number for each tensor, 0 at first; room is made as tensors come into view."""

    def __init__(self) -> None:
        self.of: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    def grow(self, tensors: int) -> "Marks":
        """Make room for ``tensors`` of them."""
        more = tensors - len(self.of)
        if more > 0:
            self.of = np.concatenate([self.of, np.zeros(more, np.int32)])
        return self

    def where(self) -> Ids:
        """The tensors that are marked."""
        return np.flatnonzero(self.of)
