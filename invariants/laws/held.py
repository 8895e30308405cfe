"""Which parameters optimizers hold, and how they are called."""

import re

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.state import Ids, Mask

MOST = 16
"""Names of further parameters that a finding tells."""
_ANONYMOUS = re.compile(r"optimizer\[\d+\] group\[\d+\] param\[\d+\]")


def owner(facts: StepFacts, tensor: int) -> str:
    """The optimizer that holds a parameter, ``optimizer[0]``; empty where none is known to."""
    return facts.state.group.get(tensor, "").partition(" ")[0]


def rate(facts: StepFacts, tensor: int) -> float:
    """The learning rate with which this step updated a parameter; 0 where it is unknown."""
    return facts.rates_used.get(facts.state.group.get(tensor, ""), 0.0)


def names(facts: StepFacts, tensors: Ids) -> tuple[str, ...]:
    """Names of tensors."""
    return tuple(facts.names.tensors[tensor] for tensor in tensors.tolist())


def anonymous(facts: StepFacts, tensors: Ids) -> Mask:
    """Which parameters belong to no module: copies, master copies, free tensors."""
    return np.array(
        [bool(_ANONYMOUS.fullmatch(facts.names.tensors[tensor])) for tensor in tensors.tolist()],
        bool,
    )


def root_of(facts: StepFacts, path: str) -> str:
    """The root that a module or parameter belongs to: its class name, or empty for the first.

    Every further root's path begins with the name of its class, `Critic` or `Critic[1]`.
    """
    first = path.partition(".")[0]
    name = facts.state.classes.get(first, "").rpartition(".")[2]
    return first if name and first.partition("[")[0] == name else ""
