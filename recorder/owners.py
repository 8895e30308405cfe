"""Owners: the modules that hold parameters whose names are not known, found among all objects."""

import gc
from collections.abc import Iterable

import torch


def owners_of(parameters: Iterable[torch.Tensor]) -> list[torch.nn.Module]:
    """The outermost modules that hold the parameters, in the order of the parameters.

    A module whose calls no hook sees (they are part of a compiled function) is found this way. It
    looks through all objects of the process, a matter of a tenth of a second.
    """
    # By type: asking an object for its class may run code of the program.
    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    parents: dict[int, torch.nn.Module] = {}
    holders: dict[int, torch.nn.Module] = {}
    for module in modules:
        for child in vars(module).get("_modules", {}).values():
            parents.setdefault(id(child), module)
        for parameter in vars(module).get("_parameters", {}).values():
            holders.setdefault(id(parameter), module)
    found: dict[int, torch.nn.Module] = {}
    for parameter in parameters:
        holder = holders.get(id(parameter))
        if holder is not None:
            root = _outermost(holder, parents)
            found.setdefault(id(root), root)
    return list(found.values())


def _outermost(module: torch.nn.Module, parents: dict[int, torch.nn.Module]) -> torch.nn.Module:
    seen = {id(module)}
    while (parent := parents.get(id(module))) is not None and id(parent) not in seen:
        seen.add(id(parent))
        module = parent
    return module
