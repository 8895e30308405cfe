"""Optimizers: what an update uses, and what it leaves."""

from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from traceparity.recorder.change_log import ChangeLog
from traceparity.recorder.frames import active_steps
from traceparity.recorder.hooks.gradients import GradientHooks
from traceparity.recorder.owners import owners_of
from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import UNWANTED, Recording, one_number, plain_value
from traceparity.recorder.registry import Registry
from traceparity.recorder.shards import Unobservable
from traceparity.tracefmt.records import Flag, Kind, Phase

_SWITCHES = frozenset(
    {"foreach", "fused", "capturable", "differentiable", "initial_lr", "decoupled_weight_decay"}
)
"""Group entries that choose an implementation or only remember: context, never judged."""


_SAMPLED = 16
"""Parameters that tell whether an optimizer has written to its own."""


class OptimizerHooks:
    """The global optimizer step hooks, and the state of optimizers between steps."""

    def __init__(
        self,
        recording: Recording,
        log: ChangeLog,
        gradients: GradientHooks,
        registry: Registry,
        owner_found: Callable[[torch.nn.Module], None],
        elder_found: Callable[[Any], None],
    ) -> None:
        self._recording = recording
        self._owner_found = owner_found
        self._elder_found = elder_found
        self._searched: set[str] = set()
        self._log = log
        self._gradients = gradients
        self.registry = registry
        # Thread and optimizer of each step under way, the outermost first.
        self._under_way: list[tuple[int, int]] = []
        self._complete: set[str] = set()
        # Fields of each optimizer's state that were there when its last update ended.
        self._held: dict[str, set[str]] = {}
        self._handles: list[Any] = []
        self._versions: dict[str, tuple[int, list[int]]] = {}
        self.steps = 0

    def install(self, patches: Patches) -> None:
        """Begin to see optimizer steps."""
        guard = self._recording.guard
        self._handles = [
            torch_optimizer.register_optimizer_step_pre_hook(guard.hook(self._before)),
            torch_optimizer.register_optimizer_step_post_hook(guard.hook(self._after)),
        ]

        def constructed(_: Any, args: tuple[Any, ...], __: Any) -> None:
            self.registry.add(args[0])

        def zeroed(_: Any, args: tuple[Any, ...], __: Any) -> None:
            self._zeroed(args[0])

        patches.after(torch.optim.Optimizer, "__init__", constructed)
        patches.after(torch.optim.Optimizer, "zero_grad", zeroed)
        patches.after(torch.nn.Module, "zero_grad", zeroed)

    def holds_any(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether an optimizer of the program holds one of the parameters."""
        held = {
            id(parameter)
            for optimizer in self.registry.live()
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        return any(id(parameter) in held for parameter in parameters)

    def remove(self) -> None:
        """Stop."""
        for handle in self._handles:
            handle.remove()

    def take_gone(self) -> set[str]:
        """The names of optimizers that died since this was last asked; they are forgotten."""
        gone = self.registry.take_gone()
        self._complete -= gone
        self._searched -= gone
        for name in gone:
            self._versions.pop(name, None)
            self._held.pop(name, None)
        return gone

    # -- between updates ----------------------------------------------------------------------

    def window_opens(self) -> None:
        """Record the state of each optimizer whose parameters all have names."""
        if self._recording.idle:
            return
        if self._recording.window.gap:
            self._complete.clear()
        for optimizer in self.registry.live():
            if self._all_named(optimizer):
                self._state(optimizer)

    def _all_named(self, optimizer: Any) -> bool:
        names = self._recording.names
        return all(
            names.parameter(parameter) is not None
            for group in optimizer.param_groups
            for parameter in group["params"]
        )

    def _state(self, optimizer: Any) -> None:
        name = self.registry.name(optimizer)
        full = name not in self._complete
        self._complete.add(name)
        flags = int(Flag.SNAPSHOT) if full else 0
        named = list(self._parameters(optimizer, name))
        held = set()
        for _, parameter, path in named:
            for field, value in state_entries(optimizer, parameter, path):
                held.add(field)
                self._log.value(Phase.STATE, name, field, value, always=full, flags=flags)
        self._dropped(name, held)
        for group, _, path in named:
            self._log.plain(
                Phase.STATE, path, "group", f"{name} group[{group}]", always=full, flags=flags
            )
        self._hyperparameters(Phase.STATE, optimizer, name, always=full, flags=flags)
        if full:
            self._recording.plain(
                Phase.STATE, name, "class", type(optimizer).__name__, Flag.CONTEXT
            )

    def _dropped(self, name: str, held: set[str]) -> None:
        """Record that state was taken away since the last update: silence would say "as before"."""
        before = self._held.pop(name, held)
        if not before <= held and not self._recording.window.gap:
            gone = sorted(before - held)
            told = {"entries": len(gone), "first": gone[0]}
            self._recording.plain(Phase.STATE, name, "dropped", told)

    def _parameters(self, optimizer: Any, name: str) -> Iterator[tuple[int, torch.Tensor, str]]:
        names = self._recording.names
        for number, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                path = names.parameter(parameter)
                if path is None:
                    # A master copy, or a parameter of no module.
                    path = names.name_parameter(parameter, f"{name} group[{number}] param[{index}]")
                yield number, parameter, path

    def _hyperparameters(
        self, phase: Phase, optimizer: Any, name: str, *, always: bool, flags: int = 0
    ) -> None:
        for number, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if key in ("params", "param_names"):
                    continue
                extra = int(Flag.CONTEXT) if key in _SWITCHES else 0
                self._log.value(
                    phase, f"{name} group[{number}]", str(key), one_number(value),
                    always=always, flags=flags | extra,
                )  # fmt: skip

    def _zeroed(self, owner: Any) -> None:
        """Gradients were set to zero before the update that they are gathered for."""
        window = self._recording.window
        if self._recording.idle or not window.open or window.updated:
            return
        is_module = isinstance(owner, torch.nn.Module)
        name = "module" if is_module else self.registry.name_in_use(owner) or "optimizer"
        flag, kind = Flag.CONTEXT, Kind.MARKER
        self._recording.plain(Phase.GRADIENT, "zero_grad", name, True, flag, kind)
        if not is_module and name != "optimizer":
            self._look_for_unseen_update(owner, name)

    def _look_for_unseen_update(self, optimizer: Any, name: str) -> None:
        """Record that parameters were written since gradients were last cleared in this step.

        An update inside a compiled region runs no hooks; the step would seem to have none.
        """
        step, first = self._recording.window.number, optimizer.param_groups[0]["params"][:_SAMPLED]
        versions = [parameter._version for parameter in first if not parameter.is_inference()]
        known, self._versions[name] = self._versions.get(name), (step, versions)
        if known is not None and known[0] == step and known[1] != versions:
            self._recording.plain(
                Phase.OPTIMIZER, name, "unseen_update", True, Flag.CONTEXT, Kind.MARKER
            )

    # -- an update ----------------------------------------------------------------------------

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._under_way:
            self.settle(beginning=True)
        key = (get_ident(), id(optimizer))
        inner = key in self._under_way
        self._under_way.append(key)
        if inner:
            return
        recording, window = self._recording, self._recording.window
        window.advance()
        window.in_step = len(set(self._under_way))
        if self.registry.meet(optimizer):
            # It is older than the recording, as may be what belongs to it.
            self._elder_found(optimizer)
        if recording.idle:
            return
        self._gradients.flush()
        name = self.registry.name(optimizer)
        if not _has_closure(args, kwargs):
            self._enters(optimizer, name)
        elif self._all_named(optimizer) and name not in self._complete:
            self._state(optimizer)
        self._hyperparameters(Phase.OPTIMIZER, optimizer, name, always=True)

    def _enters(self, optimizer: Any, name: str) -> None:
        """What the optimizer starts from and is given, once backward has run."""
        self._find_owners(optimizer)
        if name not in self._complete:
            self._state(optimizer)
        for _, parameter, path in self._parameters(optimizer, name):
            self._gradient(parameter, path)

    def root_joined(self) -> None:
        """A root was named: inside a closure the optimizer has not begun its own work yet."""
        under_way = {step for _, step in self._under_way}
        if not under_way or self._recording.idle:
            return
        for optimizer in self.registry.live():
            known = self.registry.name_in_use(optimizer) in self._complete
            if id(optimizer) in under_way and not known and self._all_named(optimizer):
                self._state(optimizer)

    def _find_owners(self, optimizer: Any) -> None:
        """Give names to parameters of modules whose calls were not seen."""
        name = self.registry.name(optimizer)
        if name in self._searched or self._all_named(optimizer):
            return
        self._searched.add(name)
        parameter = self._recording.names.parameter
        unnamed = [
            each
            for group in optimizer.param_groups
            for each in group["params"]
            if parameter(each) is None
        ]
        for owner in owners_of(unnamed):
            self._owner_found(owner)

    def _gradient(self, parameter: torch.Tensor, path: str) -> None:
        recording = self._recording
        site = recording.site(Phase.GRADIENT, path, "grad")
        if site == UNWANTED:
            return
        gradient = parameter.grad
        if gradient is None:
            recording.plain(Phase.GRADIENT, path, "grad", None)
            return
        self._gradients.hold(parameter)
        try:
            summary = recording.observer.fresh(gradient, self._gradients.last(path))
        except Unobservable as what:
            recording.writer.not_observed(path, f"its gradient is {what}")
            return
        recording.summary(Phase.GRADIENT, site, summary)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        under_way, key = self._under_way, (get_ident(), id(optimizer))
        if key in under_way:
            del under_way[len(under_way) - 1 - under_way[::-1].index(key)]
        if key in under_way:
            return
        window = self._recording.window
        window.in_step = len(set(under_way))
        self.steps += 1
        try:
            if not self._recording.idle:
                if _has_closure(args, kwargs):
                    # Only its closure has run backward, and has clipped what came of it.
                    self._enters(optimizer, self.registry.name(optimizer))
                self._leaves(optimizer)
        finally:
            window.update()

    def _leaves(self, optimizer: Any) -> None:
        name = self.registry.name(optimizer)
        named = list(self._parameters(optimizer, name))
        for _, parameter, path in named:
            self._log.tensor(Phase.OPTIMIZER, path, "value", parameter, always=True, reread=True)
        held = self._held[name] = set()
        for _, parameter, path in named:
            for field, value in state_entries(optimizer, parameter, path):
                held.add(field)
                self._log.value(Phase.OPTIMIZER, name, field, value, always=True, reread=True)

    def settle(self, *, beginning: bool = False) -> None:
        """End the steps that raised: torch tells nobody.

        Args:
            beginning: Whether a step that is under way has just begun and is not counted yet.
        """
        thread = get_ident()
        mine = [key for key in self._under_way if key[0] == thread]
        active = active_steps() if mine else None
        if active is None:
            return
        really = iter(active[:-1] if beginning else active)
        for at, (_, step) in enumerate(mine):
            if step not in really:
                self._raised(mine[at:])
                return

    def _raised(self, ended: list[tuple[int, int]]) -> None:
        """Steps that were under way ended by an exception."""
        for key in ended:
            self._under_way.remove(key)
        recording, window = self._recording, self._recording.window
        window.in_step = len(set(self._under_way))
        raised = {step for _, step in ended}
        for optimizer in self.registry.live():
            if id(optimizer) in raised and not recording.idle:
                name = self.registry.name(optimizer)
                recording.plain(Phase.OPTIMIZER, name, "raised", True, 0, Kind.MARKER)
        if not self._under_way:
            window.update()

    def skipped(self, optimizer: Any) -> None:
        """The gradient scaler left an update out."""
        recording = self._recording
        recording.window.advance()
        if not recording.idle:
            name = self.registry.name(optimizer)
            recording.plain(Phase.OPTIMIZER, name, "skipped", True, 0, Kind.MARKER)
        recording.window.update()


def _has_closure(args: Any, kwargs: Any) -> bool:
    """Whether a step was given a closure, which runs forward and backward inside of it."""
    given = args[1] if len(args) > 1 else kwargs.get("closure")
    return callable(given)


def state_entries(optimizer: Any, parameter: torch.Tensor, path: str) -> Iterator[tuple[str, Any]]:
    """Yield ``(field, value)`` of an optimizer's state for one parameter, ``exp_avg[path]``."""
    state = optimizer.state.get(parameter)
    if isinstance(state, dict):
        for key, value in state.items():
            yield from _entries(str(key), value, path)


def _entries(key: str, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from _entries(f"{key}.{inner}", item, path)
    elif isinstance(value, list | tuple):
        for inner, item in enumerate(value):
            yield from _entries(f"{key}.{inner}", item, path)
    elif isinstance(value, torch.Tensor):
        yield f"{key}[{path}]", value
    else:
        plain = plain_value(value)
        if not (isinstance(plain, str) and plain.startswith("<")):
            yield f"{key}[{path}]", plain
