"""How the recorder names what is no module: groups, optimizer state, schedulers, scalers."""

import re

_GROUP = re.compile(r"optimizer\[\d+\] group\[\d+\]")
_OPTIMIZER = re.compile(r"(optimizer\[\d+\])(?: group\[\d+\])?")
_OPTIMIZER_STATE = re.compile(r"[^\[]+\[(.+)\]")
_SCHEDULER = re.compile(r"(scheduler(?:\[\d+\])?)(?:\.(.+))?")
_OPERATOR = re.compile(r"(\w+\.\w+\[\d+\])\.(?:input|output)\[")
_FLAGS = frozenset({"training", "requires_grad", "shared_with", "shares_storage_with", "group"})
_PARAMETER_FACTS = frozenset(
    {"value", "requires_grad", "shared_with", "shares_storage_with", "group", "grad"}
)


def is_group(component: str) -> bool:
    """Whether it is a parameter group of an optimizer, whose fields are hyperparameters."""
    return _GROUP.fullmatch(component) is not None


def optimizer_state_parameter(component: str, field: str) -> str:
    """The parameter that a piece of optimizer state belongs to; empty for anything else."""
    if not component.startswith("optimizer[") or is_group(component) or operator_of(field):
        return ""
    match = _OPTIMIZER_STATE.fullmatch(field)
    return match[1] if match else ""


def optimizer_of(component: str) -> str:
    """The optimizer that a component is or is a parameter group of; empty for anything else."""
    match = _OPTIMIZER.fullmatch(component)
    return match[1] if match else ""


def scheduler_of(component: str) -> str:
    """The scheduler that a component is or is a counter of; empty for anything else."""
    match = _SCHEDULER.fullmatch(component)
    return match[1] if match else ""


def is_scaler(component: str) -> bool:
    """Whether it belongs to a gradient scaler."""
    return component == "scaler" or component.startswith(("scaler.", "scaler["))


def is_flag(field: str) -> bool:
    """Whether the field is a property of a module or parameter rather than a value."""
    return field in _FLAGS


def is_parameter_fact(field: str) -> bool:
    """Whether the field is said of a parameter or buffer."""
    return field in _PARAMETER_FACTS


def owner(name: str) -> str:
    """The module that holds a parameter, buffer or module; empty for the root."""
    return name.rpartition(".")[0]


def within(component: str, parent: str) -> bool:
    """Whether a component is ``parent`` or lies inside it; everything lies inside the root."""
    return not parent or component == parent or component.startswith(f"{parent}.")


def is_generator(component: str) -> bool:
    """Whether a component is a random generator."""
    return component.startswith("rng.")


def operator_of(field: str) -> str:
    """The operator call that a field is of, such as ``aten.addmm[0]``; empty for a module's own."""
    found = _OPERATOR.match(field)
    return found[1] if found else ""
