"""Memory that nothing was written to yet: what lies in it by chance differs between equal runs."""

from collections.abc import Iterable
from typing import Any

import torch

from traceparity.recorder.leaves import tensors

_GIVE_BLANK = frozenset(
    {
        "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
        "resize_", "resize_as_", "set_",
    }
)  # fmt: skip
_WRITE_ALL = frozenset(
    {
        "bernoulli_", "cauchy_", "copy_", "exponential_", "fill_", "geometric_", "log_normal_",
        "normal_", "random_", "uniform_", "zero_",
    }
)  # fmt: skip


class BlankMemory:
    """Follows which tensors may hold such chance values, while operators are called.

    What was written in portions, and what was computed from it, is taken to hold some.
    """

    def __init__(self) -> None:
        # Storages by identity; one that is freed may be given again, and is then written anew.
        self._blank: set[int] = set()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor may hold chance values."""
        return bool(self._blank) and _storage(tensor) in self._blank

    def called(
        self, operator: str, read: Iterable[torch.Tensor], written: list[torch.Tensor], result: Any
    ) -> None:
        """An operator was called.

        Args:
            operator: Its name and overload, ``add_.Tensor``.
            read: The arguments that it only read.
            written: The arguments that it wrote to.
            result: What it gave.
        """
        name, _, overload = operator.partition(".")
        changed = {_storage(tensor) for tensor in (*written, *tensors(result))}
        if name in _GIVE_BLANK or any(map(self.holds, read)):
            self._blank |= changed - {0}
        elif name in _WRITE_ALL or overload.endswith("out"):
            self._blank -= {
                _storage(tensor)
                for tensor in written
                if _storage(tensor) and tensor.nbytes == tensor.untyped_storage().nbytes()
            }
        else:
            self._blank -= changed - set(map(_storage, written))


def _storage(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        # Sparse and other tensors without one are never blank.
        return 0
