"""Names: from live modules, parameters and optimizers to paths that are equal in every run."""

import weakref
from collections.abc import Iterator
from typing import Any

import torch

WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "OptimizedModule": "_orig_mod",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "AveragedModel": "module",
    "_FabricModule": "_forward_module",
}
"""Classes that only wrap one module, and under which name."""


class ModuleEntry:
    """What is known of a live module; holds it weakly.

    Attributes:
        path: Its path without wrappers.
        root: The entry of the root whose tree it is in.
        wrapper: Whether it only wraps another module and is not observed itself.
        sites: Site ids by kind and leaf, filled by the module hooks.
        described: Whether its class and settings were recorded.
        trained: Of a root: whether it took part in a step.
        complete: Of a root: whether its state was recorded in full.
        members: Of a root: the entries of its tree, itself included, in the order of the tree.
    """

    __slots__ = (
        "complete",
        "described",
        "members",
        "path",
        "ref",
        "root",
        "sites",
        "trained",
        "wrapper",
    )

    def __init__(
        self, module: torch.nn.Module, path: str, root: "ModuleEntry | None", wrapper: bool
    ) -> None:
        self.ref = weakref.ref(module)
        self.path = path
        self.root: ModuleEntry = self if root is None else root
        self.wrapper = wrapper
        self.sites: dict[Any, int] = {}
        self.described = False
        self.trained = False
        self.complete = False
        self.members: list[ModuleEntry] = []


def wrapped_name(module: torch.nn.Module) -> str | None:
    """Under which name a wrapper holds what it wraps; None for any other module."""
    for kind in type(module).__mro__:
        name = WRAPPERS.get(kind.__name__)
        if name is not None and name in module._modules:
            return name
    return None


class Names:
    """The names of all modules and parameters met so far."""

    def __init__(self) -> None:
        self.modules: dict[int, ModuleEntry] = {}
        self.roots: list[ModuleEntry] = []
        self._parameters: dict[int, tuple[Any, str]] = {}
        self._gone: list[str] = []
        self._root_names: dict[str, int] = {}
        self._has_main = False

    def adopt(self, root: torch.nn.Module, *, main: bool) -> ModuleEntry:
        """Name a root module and its whole tree.

        Args:
            root: A module that was called while no other module ran.
            main: Whether it may be the main root, whose path is empty (it has parameters).
        """
        known = self._inner_entry(root)
        if known is not None:
            prefix, owner = known.path, known.root
        elif main and not self._has_main:
            prefix, owner, self._has_main = "", None, True
        else:
            prefix, owner = self._root_name(innermost(root)), None
        self._walk(root, prefix, owner)
        entry = self.modules[id(root)]
        if owner is None:
            self.roots.append(entry)
        return entry

    def _inner_entry(self, root: torch.nn.Module) -> ModuleEntry | None:
        while (name := wrapped_name(root)) is not None:
            inner = root._modules[name]
            if inner is None:
                return None
            if id(inner) in self.modules:
                return self.modules[id(inner)]
            root = inner
        return None

    def _root_name(self, root: torch.nn.Module) -> str:
        name = class_name(root)
        number = self._root_names.get(name, 0)
        self._root_names[name] = number + 1
        return f"{name}[{number}]" if number else name

    def _walk(self, module: torch.nn.Module, path: str, root: ModuleEntry | None) -> None:
        stack = [(module, path)]
        while stack:
            current, here = stack.pop()
            inner = wrapped_name(current)
            entry = self.modules.get(id(current))
            if entry is None:
                entry = ModuleEntry(current, here, root, inner is not None)
                self._remember(current, entry)
            root = entry.root if root is None else root
            for name, child in reversed(current._modules.items()):
                if child is not None and id(child) not in self.modules:
                    below = here if name == inner else join(here, name)
                    stack.append((child, below))

    def _remember(self, module: torch.nn.Module, entry: ModuleEntry) -> None:
        key, modules, gone, path = id(module), self.modules, self._gone, entry.path

        def forget(_: object) -> None:
            modules.pop(key, None)
            gone.append(path)

        # An id is only good while its module lives, so the entry goes with the module.
        entry.ref = weakref.ref(module, forget)
        modules[key] = entry
        entry.root.members.append(entry)

    def take_gone(self) -> set[str]:
        """The paths of modules that died since this was last asked, unless others have them now."""
        if not self._gone:
            return set()
        gone = {self._gone.pop() for _ in range(len(self._gone))}
        for root in self.live_roots():
            root.members = [entry for entry in root.members if entry.ref() is not None]
        # The empty path and names such as `loss` are not told apart by what goes before the dot.
        return gone - {entry.path for entry in list(self.modules.values())} - {""}

    def refresh(self, root: ModuleEntry) -> None:
        """Name modules that were added to a tree since it was walked."""
        module = root.ref()
        if module is not None:
            for parent in list(module.modules()):
                entry = self.modules.get(id(parent))
                if entry is not None:
                    self._walk_new(parent, entry)

    def _walk_new(self, parent: torch.nn.Module, entry: ModuleEntry) -> None:
        inner = wrapped_name(parent)
        for name, child in parent._modules.items():
            if child is not None and id(child) not in self.modules:
                below = entry.path if name == inner else join(entry.path, name)
                self._walk(child, below, entry.root)

    def parameter(self, tensor: torch.Tensor) -> str | None:
        """The name of a parameter or buffer; None for a tensor of no known module."""
        found = self._parameters.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def name_parameter(self, tensor: torch.Tensor, name: str) -> str:
        """Give a tensor a name unless it has one; returns the one that it has."""
        known = self.parameter(tensor)
        if known is not None:
            return known
        key, parameters = id(tensor), self._parameters

        def forget(_: object) -> None:
            parameters.pop(key, None)

        self._parameters[key] = (weakref.ref(tensor, forget), name)
        return name

    def live_roots(self) -> list[ModuleEntry]:
        """The roots that still live and took part in a step."""
        self.roots = [root for root in self.roots if root.ref() is not None]
        return [root for root in self.roots if root.trained]


def live_modules(root: ModuleEntry) -> Iterator[tuple[ModuleEntry, torch.nn.Module]]:
    """The live modules of a root's tree, in the order of the tree."""
    for entry in root.members:
        module = entry.ref()
        if module is not None:
            yield entry, module


def transient_entry(root: torch.nn.Module) -> ModuleEntry:
    """An entry for one call of a root that has no name yet, under the name of its class."""
    return ModuleEntry(root, class_name(innermost(root)), None, wrapper=False)


def innermost(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside all wrappers."""
    while (name := wrapped_name(module)) is not None:
        inner = module._modules[name]
        if inner is None:
            break
        module = inner
    return module


def class_name(module: torch.nn.Module) -> str:
    """The name of a module's class; of one that torch's `fully_shard` made its own, as it was."""
    kinds = type(module).__mro__
    if len(kinds) > 2 and kinds[1].__name__ == "FSDPModule":
        return kinds[2].__name__
    return kinds[0].__name__


def join(path: str, name: str) -> str:
    """A dotted path one segment longer."""
    return f"{path}.{name}" if path else name
