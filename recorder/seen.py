"""Seen: what is known of tensors while they live and are not written to."""

import weakref
from typing import Generic, TypeVar

import torch

Fact = TypeVar("Fact")

_MANY = 1 << 14
"""Tensors up to which the table is not looked through for dead ones."""


class Seen(Generic[Fact]):
    """A table of facts by tensor object and version counter; it keeps no tensor alive.

    A step may call a million modules: tensors that died are taken out whenever the table has
    become twice as large as what lived in it last time.
    """

    def __init__(self) -> None:
        self._facts: dict[int, tuple[weakref.ref[torch.Tensor], int, Fact]] = {}
        self._limit = _MANY

    def __len__(self) -> int:
        return len(self._facts)

    def get(self, tensor: torch.Tensor, version: int) -> Fact | None:
        """What is known of a tensor as it is in this version."""
        found = self._facts.get(id(tensor))
        if found is not None and found[1] == version and found[0]() is tensor:
            return found[2]
        return None

    def put(self, tensor: torch.Tensor, version: int, fact: Fact) -> None:
        """Remember a fact."""
        self._facts[id(tensor)] = (weakref.ref(tensor), version, fact)
        if len(self._facts) > self._limit:
            # In place: a weak reference that dies meanwhile changes nothing.
            for key in [key for key, (ref, _, _) in self._facts.items() if ref() is None]:
                del self._facts[key]
            self._limit = max(_MANY, 2 * len(self._facts))

    def discard(self, tensor: torch.Tensor) -> None:
        """Forget what is known of a tensor."""
        self._facts.pop(id(tensor), None)

    def clear(self) -> None:
        """Forget everything."""
        self._facts.clear()
        self._limit = _MANY
