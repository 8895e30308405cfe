"""Memory that nothing was written to yet: what lies in it by chance differs between equal runs."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from traceparity.recorder.leaves import tensors

_reference: Any = StorageWeakRef

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
        # Storages by identity; the weak reference keeps it from being given to another one.
        self._blank: dict[int, Any] = {}

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor may hold chance values."""
        return bool(self._blank) and _identity(_storage(tensor)) in self._blank

    def forget_freed(self) -> None:
        """Forget memory that no tensor has any more."""
        for key in [key for key, ref in self._blank.items() if ref.expired()]:
            del self._blank[key]

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
        if name in _GIVE_BLANK or any(map(self.holds, read)):
            for storage in map(_storage, (*written, *tensors(result))):
                if storage is not None:
                    self._blank[storage._cdata] = _reference(storage)
            return
        if not self._blank:
            return
        if name in _WRITE_ALL or overload.endswith("out"):
            filled = [
                tensor
                for tensor in written
                if (storage := _storage(tensor)) is not None and tensor.nbytes == storage.nbytes()
            ]
            self._no_longer(filled)
        else:
            changed = {_identity(_storage(tensor)) for tensor in written}
            self._no_longer(
                tensor for tensor in tensors(result) if _identity(_storage(tensor)) not in changed
            )

    def _no_longer(self, filled: Iterable[torch.Tensor]) -> None:
        for tensor in filled:
            self._blank.pop(_identity(_storage(tensor)), None)


def _storage(tensor: torch.Tensor) -> Any:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        # Sparse and other tensors without one are never blank.
        return None


def _identity(storage: Any) -> int:
    return 0 if storage is None else int(storage._cdata)
