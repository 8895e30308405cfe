"""Registry: optimizers, schedulers and scalers of the program, numbered as they come into use."""

import weakref
from typing import Any


class Registry:
    """Objects of one kind, held weakly, with stable names.

    Numbers are given at first use rather than at construction: a program that builds more of them
    than it uses still agrees with one that does not.
    """

    def __init__(self, label: str, *, always_number: bool) -> None:
        """Start empty.

        Args:
            label: First part of each name, e.g. ``optimizer``.
            always_number: Whether the first one is ``label[0]`` rather than ``label``.
        """
        self._label = label
        self._always_number = always_number
        self._refs: dict[int, weakref.ref[Any]] = {}
        self._names: dict[int, str] = {}
        self._gone: list[str] = []
        self._count = 0

    def add(self, item: Any) -> None:
        """Take note of an object."""
        key, refs, names, gone = id(item), self._refs, self._names, self._gone
        if key in refs:
            return

        def forget(_: object) -> None:
            refs.pop(key, None)
            name = names.pop(key, None)
            if name is not None:
                gone.append(name)

        refs[key] = weakref.ref(item, forget)

    def meet(self, item: Any) -> bool:
        """Take note of an object in use; whether it, or what it wraps, was not known before."""
        item = self._wrapped(item)
        new = id(item) not in self._refs
        self.add(item)
        return new

    def take_gone(self) -> set[str]:
        """The names of objects that died since this was last asked; nothing else gets them."""
        return {self._gone.pop() for _ in range(len(self._gone))}

    def live(self) -> list[Any]:
        """The objects that still live, in order of construction."""
        found = (ref() for ref in list(self._refs.values()))
        return [item for item in found if item is not None]

    def name_in_use(self, item: Any) -> str:
        """The name that an object has already; empty where it is not in use yet."""
        return self._names.get(id(item), "")

    def _wrapped(self, item: Any) -> Any:
        """What an optimizer passes on to that frameworks put around another one."""
        groups = None if id(item) in self._refs else getattr(item, "param_groups", None)
        if groups is not None:
            for other in self.live():
                if other.param_groups is groups:
                    return other
        return item

    def name(self, item: Any) -> str:
        """The name of an object; a wrapper has that of what it wraps."""
        item = self._wrapped(item)
        self.add(item)
        key = id(item)
        if key not in self._names:
            number = self._count
            self._count += 1
            plain = not number and not self._always_number
            self._names[key] = self._label if plain else f"{self._label}[{number}]"
        return self._names[key]
