"""Roles: what a site means to invariants, and the tensors, modules and groups that it is about."""

import enum
import re
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from traceparity.tracefmt.records import Phase, Site, SiteEntry

_GROUP = re.compile(r"optimizer\[\d+\] group\[\d+\]")
_OPTIMIZER = re.compile(r"optimizer\[\d+\]")
_COUNTER = re.compile(r"(scheduler|scaler)(\[\d+\])?\.\w+")


class Role(enum.IntEnum):
    """What a row says. `SUBJECTS` tells what its subject is."""

    OTHER = 0
    VALUE = 1
    REQUIRES_GRAD = 2
    SHARED_WITH = 3
    GROUP = 4
    GRADIENT = 5
    OPTIMIZER_STATE = 6
    TRAINING = 7
    CLASS = 8
    SETTINGS = 9
    INPUT = 10
    OUTPUT = 11
    GRAD_OUTPUT = 12
    HYPERPARAMETER = 13
    COUNTER = 14
    RNG = 15
    CHECKPOINT = 16
    BATCH = 17
    SAMPLE_IDS = 18
    SAMPLE_DIGESTS = 19
    BATCH_FACT = 20
    PASS_END = 21
    LOSS = 22
    CLIP = 23
    ZERO_GRAD = 24
    SKIPPED = 25
    METRIC = 26
    LEFT_GRADIENTS = 27
    DRAWS = 28
    SAMPLER = 29
    UNSEEN_UPDATE = 30
    WRITES = 31
    WATCHED = 32


_TENSOR_ROLES = (
    Role.VALUE,
    Role.REQUIRES_GRAD,
    Role.SHARED_WITH,
    Role.GROUP,
    Role.GRADIENT,
    Role.WRITES,
)
_MODULE_ROLES = (Role.TRAINING, Role.DRAWS, Role.INPUT, Role.OUTPUT, Role.GRAD_OUTPUT)
_BATCH_FACTS = ("epoch", "index", "worker", "dataset_length", "dataset_ids")


def role_of(site: Site) -> Role:
    """The role of a site."""
    phase, component, name = site.phase, site.component, site.field
    if component.endswith("()"):
        return Role.WATCHED
    match phase:
        case Phase.DATA:
            return _data_role(name)
        case Phase.LOSS:
            return Role.LOSS
        case Phase.GRADIENT if name != "grad":
            if component == "zero_grad":
                return Role.ZERO_GRAD
            return Role.CLIP if component.startswith("clip_grad_") else Role.OTHER
    if name == "digest" and component.startswith("rng."):
        return Role.RNG
    if _GROUP.fullmatch(component):
        return Role.HYPERPARAMETER
    if _OPTIMIZER.fullmatch(component):
        return _optimizer_role(name)
    if phase in (Phase.FORWARD, Phase.BACKWARD) and name != "value":
        return _call_role(component, name)
    return _state_role(phase, component, name)


def _data_role(name: str) -> Role:
    if name.startswith("batch"):
        return Role.BATCH
    if name in _BATCH_FACTS:
        return Role.BATCH_FACT
    named = {
        "sample_ids": Role.SAMPLE_IDS,
        "sample_digests": Role.SAMPLE_DIGESTS,
        "pass_end": Role.PASS_END,
        "sampler": Role.SAMPLER,
    }
    return named.get(name, Role.OTHER)


def _optimizer_role(name: str) -> Role:
    named = {
        "skipped": Role.SKIPPED,
        "class": Role.CLASS,
        "unseen_update": Role.UNSEEN_UPDATE,
    }
    return named.get(name, Role.OPTIMIZER_STATE)


def _call_role(component: str, name: str) -> Role:
    if component == "gradients" and name == "before":
        return Role.LEFT_GRADIENTS
    if name == "grad":
        return Role.GRADIENT
    if name in ("training", "draws"):
        return Role.TRAINING if name == "training" else Role.DRAWS
    for prefix, role in (("input[", Role.INPUT), ("output", Role.OUTPUT)):
        if name.startswith(prefix):
            return role
    return Role.GRAD_OUTPUT if name.startswith("grad_output") else Role.OTHER


def _state_role(phase: Phase, component: str, name: str) -> Role:
    if name == "value":
        return Role.COUNTER if _COUNTER.fullmatch(component) else Role.VALUE
    if phase == Phase.SCHEDULER:
        return Role.METRIC if name == "metric" else Role.OTHER
    if component == "checkpoint":
        return Role.CHECKPOINT
    named = {
        "requires_grad": Role.REQUIRES_GRAD,
        "shared_with": Role.SHARED_WITH,
        "group": Role.GROUP,
        "grad": Role.GRADIENT,
        "writes": Role.WRITES,
        "training": Role.TRAINING,
        "class": Role.CLASS,
        "settings": Role.SETTINGS,
    }
    return named.get(name, Role.OTHER)


class Names(msgspec.Struct):
    """Numbers for the names of one trace, growing with it.

    Attributes:
        tensors: Names of parameters and buffers; the subject of VALUE, REQUIRES_GRAD, SHARED_WITH,
            GROUP and GRADIENT rows is an index into it.
        modules: Paths of modules; the subject of TRAINING, DRAWS, INPUT, OUTPUT and GRAD_OUTPUT.
        components: Everything else that rows are about; the subject of all other rows.
        role: ``(sites,)`` `Role` of each site.
        subject: ``(sites,)`` index into one of the lists.
        phase: ``(sites,)`` `Phase` of each site.
    """

    tensors: list[str] = msgspec.field(default_factory=list)
    modules: list[str] = msgspec.field(default_factory=list)
    components: list[str] = msgspec.field(default_factory=list)
    role: npt.NDArray[np.uint8] = msgspec.field(default_factory=lambda: np.empty(0, np.uint8))
    subject: npt.NDArray[np.int64] = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    phase: npt.NDArray[np.uint8] = msgspec.field(default_factory=lambda: np.empty(0, np.uint8))
    _tensor_ids: dict[str, int] = msgspec.field(default_factory=dict)
    _module_ids: dict[str, int] = msgspec.field(default_factory=dict)
    _component_ids: dict[str, int] = msgspec.field(default_factory=dict)

    def extend(self, sites: Sequence[SiteEntry]) -> None:
        """Take in the sites that are new since the last call."""
        known = len(self.role)
        if len(sites) == known:
            return
        new = [entry.site for entry in sites[known:]]
        roles = [role_of(site) for site in new]
        subjects = [self._subject(role, site) for role, site in zip(roles, new, strict=True)]
        self.role = np.concatenate([self.role, np.array(roles, np.uint8)])
        self.subject = np.concatenate([self.subject, np.array(subjects, np.int64)])
        phases = np.array([site.phase for site in new], np.uint8)
        self.phase = np.concatenate([self.phase, phases])

    def tensor(self, name: str) -> int | None:
        """The number of a parameter or buffer; None where the trace has no such name so far."""
        return self._tensor_ids.get(name)

    def module(self, path: str) -> int | None:
        """The number of a module; None where the trace has no such path so far."""
        return self._module_ids.get(path)

    def _subject(self, role: Role, site: Site) -> int:
        if role in _TENSOR_ROLES:
            return _number(site.component, self.tensors, self._tensor_ids)
        if role in _MODULE_ROLES:
            return _number(site.component, self.modules, self._module_ids)
        return _number(site.component, self.components, self._component_ids)


def _number(name: str, names: list[str], ids: dict[str, int]) -> int:
    found = ids.get(name)
    if found is None:
        found = ids[name] = len(names)
        names.append(name)
    return found
