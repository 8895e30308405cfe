"""Modules: inputs and outputs by call, gradients of outputs, buffers that a call changed.

Global forward hooks see every module without touching any (a hook on a module would switch off
fused fast paths). Gradients come from hooks on output tensors: full backward hooks insert autograd
nodes, which makes valid programs crash and reorders sums.
"""

import functools
import threading
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from traceparity.recorder.frames import active_modules
from traceparity.recorder.graph_room import TOO_DEEP, GraphRoom
from traceparity.recorder.guard import inside_backward, inside_transform
from traceparity.recorder.hooks.data import DataHooks
from traceparity.recorder.hooks.manual_updates import ManualUpdates
from traceparity.recorder.hooks.operators import OperatorHooks
from traceparity.recorder.hooks.optimizers import OptimizerHooks
from traceparity.recorder.hooks.state import StateHooks
from traceparity.recorder.leaves import leaves, tensors
from traceparity.recorder.naming import ModuleEntry, join, transient_entry
from traceparity.recorder.operator_place import PROGRAM
from traceparity.recorder.patches import Patches
from traceparity.recorder.recording import UNWANTED, Recording, plain_value
from traceparity.recorder.seen import Seen
from traceparity.recorder.shards import Unobservable, Valueless
from traceparity.tracefmt.records import Flag, Phase
from traceparity.tracefmt.rows import Rows

_EVALUATION = Flag.CONTEXT | Flag.EVALUATION


class _Call:
    """A module call in progress."""

    __slots__ = ("entered", "entry", "inputs", "key", "mode", "random", "root", "rows", "wraps")

    def __init__(self, key: int, entry: ModuleEntry | None, mode: str, *, root: bool) -> None:
        self.key = key
        self.entry = entry
        self.mode = mode
        self.root = root
        # Whether it only passes on to another call, and whether that call was seen.
        self.wraps = entry is not None and entry.wrapper
        self.entered = False
        self.inputs: list[tuple[str, torch.Tensor, int]] = []
        self.rows: Rows | None = None
        # Of evaluation activity: the random state before it.
        self.random: torch.Tensor | None = None


class ModuleHooks:
    """The global module hooks."""

    def __init__(
        self,
        recording: Recording,
        data: DataHooks,
        state: StateHooks,
        optimizers: OptimizerHooks,
        updates: ManualUpdates,
    ) -> None:
        self._recording = recording
        self._updates = updates
        self._data = data
        self._state = state
        self._optimizers = optimizers
        self._calls = threading.local()
        self._handles: list[Any] = []
        self._watched: Seen[list[int]] = Seen()
        self._room = GraphRoom(recording.window)
        self._on_gradient = recording.guard.hook(self._gradient, unless=lambda *_: recording.idle)
        self.operators = OperatorHooks(recording, self._running, optimizers.registry)

    def install(self, patches: Patches) -> None:
        """Begin to see module calls."""
        guard = self._recording.guard
        self._handles = [
            torch_module.register_module_forward_pre_hook(
                guard.hook(self._before, unless=self._begins_inside_idle)
            ),
            torch_module.register_module_forward_hook(
                guard.hook(self.ends, unless=self._ends_inside_idle),
                with_kwargs=True,
                always_call=True,
            ),
        ]
        self._handles += self.operators.watch_modules()
        # torch warns the program of global hooks when a compiled module is called: not of ours.
        patches.replace(torch_module, "_has_any_global_hook", lambda _: self._others_have_hooks)

    def _others_have_hooks(self) -> bool:
        mine = {handle.id for handle in self._handles}
        tables = (
            torch_module._global_backward_pre_hooks,
            torch_module._global_backward_hooks,
            torch_module._global_forward_pre_hooks,
            torch_module._global_forward_hooks,
        )
        return any(key not in mine for table in tables for key in table)

    def remove(self) -> None:
        """Stop."""
        self.operators.remove()
        for handle in self._handles:
            handle.remove()
            # torch forgets this one.
            torch_module._global_forward_hooks_with_kwargs.pop(handle.id, None)

    def _running(self) -> str | None:
        """The path of the module whose call in a recorded step is the innermost one."""
        stack = self._stack()
        if not stack:
            return PROGRAM
        if stack[-1].mode != "training" or stack[-1].entry is None:
            return None
        return stack[-1].entry.path

    # -- a call begins ------------------------------------------------------------------------

    def black_box_begins(self, module: torch.nn.Module, args: Any) -> None:
        """A module is called whose inside may run where no hook is called."""
        self._begins(module, args).wraps = True

    def _before(self, module: torch.nn.Module, args: Any) -> None:
        call = self._begins(module, args)
        if call.mode == "training" and call.entry is not None and not call.wraps:
            self._inputs(call, args)
        elif call.mode == "evaluation" and call.root:
            self._evaluation_leaves(call, "input", args)
            call.random = torch.get_rng_state()

    def _begins_inside_idle(self, module: torch.nn.Module, args: Any) -> bool:
        """Whether it is an inner call of a step that is not recorded: nothing is kept of it."""
        stack = self._stack()
        if not stack or stack[-1].mode != "idle" or stack[-1].key == id(module):
            return False
        entry = self._recording.names.modules.get(id(module))
        return entry is not None and entry.root is not entry

    def _ends_inside_idle(self, module: torch.nn.Module, *_: Any) -> bool:
        stack, key = self._stack(), id(module)
        return bool(stack) and stack[-1].mode == "idle" and all(call.key != key for call in stack)

    def _begins(self, module: torch.nn.Module, args: Any) -> _Call:
        stack = self._stack()
        if inside_transform():
            if not stack:
                self._transformed_root(module, args)
            call = _Call(id(module), None, "ignored", root=False)
            stack.append(call)
            return call
        entry = self._recording.names.modules.get(id(module))
        if stack and self._is_odd(id(module), entry, stack):
            _leave_active(stack, own_call=True)
        if stack:
            call = self._inner_call(module, entry, stack[-1])
        else:
            call = self._root_call(module, entry, args)
        stack.append(call)
        if call.mode == "training" and call.root and call.entry is not None:
            self._state.called(call.entry, module)
        return call

    def _is_odd(self, key: int, entry: ModuleEntry | None, stack: list[_Call]) -> bool:
        """Whether a call inside of the calls on the stack is unlikely enough to look closer."""
        if stack[-1].wraps and stack[-1].key == key:
            return False
        if stack[-1].mode not in ("training", "idle"):
            return torch.is_grad_enabled() and not inside_backward()
        if entry is None or entry.root is entry or not self._belongs_to_step():
            return True
        return any(call.key == key for call in stack)

    def _root_call(self, module: torch.nn.Module, entry: ModuleEntry | None, args: Any) -> _Call:
        recording = self._recording
        if inside_backward():
            return _Call(id(module), entry, "recompute", root=False)
        trains, has_parameters = _takes_part(module, args)
        if not trains and not has_parameters:
            # Transforms and metrics are modules too, but no part of the training graph.
            return _Call(id(module), None, "ignored", root=False)
        in_step = trains or self._belongs_to_step()
        if entry is None:
            trained = trains or self._optimizers.holds_any(module.parameters())
            if in_step or trained:
                entry = recording.names.adopt(module, main=has_parameters and trained)
            else:
                # It may never take part, or become the main root later: it gets no name for good.
                entry = transient_entry(module)
        call = _Call(id(module), entry, "training", root=True)
        if trains:
            self._training_root(entry, args)
        elif not in_step:
            call.mode, call.rows = "evaluation", Rows()
        elif not entry.root.trained:
            entry.root.trained = True
            self._state.root_joined(entry.root)
        if recording.idle and call.mode == "training":
            call.mode = "idle"
        return call

    def _transformed_root(self, module: torch.nn.Module, args: Any) -> None:
        """A root called by torch.func: its inside has no values, yet it trains all the same."""
        trains, has_parameters = _takes_part(module, args)
        if not trains or not has_parameters or inside_backward():
            return
        recording = self._recording
        entry = recording.names.modules.get(id(module))
        if entry is None:
            entry = recording.names.adopt(module, main=True)
        recording.writer.not_observed(entry.path, "the inside of a torch.func transform")
        self._training_root(entry, args)
        # No backward pass will be seen.
        recording.window.backward()

    def _belongs_to_step(self) -> bool:
        window = self._recording.window
        return window.open and not window.updated

    def _training_root(self, entry: ModuleEntry, args: Any) -> None:
        root = entry.root
        joins = not root.trained
        root.trained = True
        self._optimizers.settle()
        self._updates.before_training(root)
        was_open = self._belongs_to_step()
        teacher = self._data.before_training(args)
        self._recording.window.forward()
        if teacher is not None:
            self._recording.rows.extend(
                teacher, microbatch=self._recording.window.microbatch, without=_EVALUATION
            )
        if joins and was_open:
            self._state.root_joined(root)
        if joins:
            self._optimizers.root_joined()
        self._data.claim_for_training(args)

    def _inner_call(
        self, module: torch.nn.Module, entry: ModuleEntry | None, outer: _Call
    ) -> _Call:
        mode = outer.mode
        if mode == "recompute" or inside_backward():
            return _Call(id(module), entry, "recompute", root=False)
        if mode == "training" and entry is None and outer.entry is not None:
            self._recording.names.refresh(outer.entry.root)
            entry = self._recording.names.modules.get(id(module))
        if outer.wraps and entry is not None and outer.entry is not None:
            outer.entered = outer.entered or entry.path == outer.entry.path
        return _Call(id(module), entry, mode, root=False)

    def _inputs(self, call: _Call, args: Any) -> None:
        entry = call.entry
        assert entry is not None
        for index, arg in enumerate(args):
            if isinstance(arg, torch.Tensor):
                self._leaf(entry, ("input", index), f"input[{index}]", arg, 0)
                if not arg.is_inference():
                    call.inputs.append((f"[{index}]", arg, arg._version))
            else:
                for path, leaf in leaves(arg, f"input[{index}]"):
                    self._leaf(entry, path, path, leaf, 0)

    # -- a call ends --------------------------------------------------------------------------

    def ends(self, module: torch.nn.Module, args: Any, *rest: Any) -> None:
        """A call ended, by an exception if there is nothing but its arguments."""
        call = self._unwind(id(module))
        # After an exception torch leaves out the keyword arguments, and there is no output.
        if call is None or call.entry is None or len(rest) < 2:
            return
        kwargs, output = rest
        if call.mode == "recompute":
            self._watch_recomputed(call.entry, output)
            return
        if call.mode == "evaluation":
            if call.root:
                self._evaluation_ends(call, module, (args, kwargs), output)
            return
        if call.mode != "training":
            return
        if call.root:
            self._data.claim_by_keyword(kwargs)
        if call.wraps:
            if not call.entered:
                self._black_box(call.entry, args, kwargs, output)
            return
        self._outputs(call, module, kwargs, output)
        if call.root:
            self._state.rng(Phase.FORWARD)
        self._recording.window.spill()

    def _black_box(self, entry: ModuleEntry, args: Any, kwargs: Any, output: Any) -> None:
        """A wrapper whose module never ran as Python: only what went in and came out is seen."""
        self._recording.writer.not_observed(entry.path, "the inside of a torch.compile region")
        for value in (args, kwargs):
            for path, leaf in leaves(value, "input"):
                self._leaf(entry, path, path, leaf, 0)
        self._results(entry, output)

    def _outputs(self, call: _Call, module: torch.nn.Module, kwargs: Any, output: Any) -> None:
        entry = call.entry
        assert entry is not None
        for path, leaf in leaves(kwargs, "input"):
            self._leaf(entry, path, path, leaf, 0)
        for index, tensor, version in call.inputs:
            if tensor._version != version:
                self._leaf(entry, ("after", index), f"input_after{index}", tensor, Flag.CONTEXT)
        call.inputs.clear()
        # Before the outputs, which may have come from them.
        for name, buffer in module._buffers.items():
            if buffer is not None:
                self._state.buffer_changed(Phase.FORWARD, join(entry.path, name), buffer)
        self._results(entry, output)

    def _results(self, entry: ModuleEntry, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self._leaf(entry, "output[0]", "output[0]", output, 0)
            self._watch(entry, "[0]", output)
        else:
            for path, leaf in leaves(output, "output"):
                self._leaf(entry, path, path, leaf, 0)
                if isinstance(leaf, torch.Tensor):
                    self._watch(entry, path.removeprefix("output"), leaf)

    def _leaf(self, entry: ModuleEntry, key: Any, field: str, leaf: Any, flags: int) -> None:
        recording = self._recording
        site = entry.sites.get(key)
        if site is None:
            site = entry.sites[key] = recording.site(Phase.FORWARD, entry.path, field)
        if site == UNWANTED:
            return
        window = recording.window
        if isinstance(leaf, torch.Tensor):
            try:
                recording.observer.tensor(
                    recording.rows, site, window.call(site), window.microbatch, flags, leaf
                )
            except Unobservable as what:
                self._unseen(entry, field, what)
        else:
            recording.observer.plain(
                recording.rows, site, window.call(site), window.microbatch, flags,
                plain_value(leaf),
            )  # fmt: skip

    def _unwind(self, key: int) -> _Call | None:
        stack = self._stack()
        # An exception may have ended inner calls without a word.
        for at in range(len(stack) - 1, -1, -1):
            if stack[at].key == key:
                call: _Call = stack[at]
                del stack[at:]
                return call
        return None

    def _stack(self) -> list[_Call]:
        stack: list[_Call] | None = getattr(self._calls, "stack", None)
        if stack is None:
            stack = self._calls.stack = []
        return stack

    # -- gradients of outputs -----------------------------------------------------------------

    def _watch(self, entry: ModuleEntry, index: str, output: torch.Tensor) -> None:
        if not output.requires_grad or not output.is_floating_point():
            return
        site = entry.sites.get(("grad", index))
        if site is None:
            site = self._recording.site(Phase.BACKWARD, entry.path, f"grad_output{index}")
            entry.sites[("grad", index)] = site
        if site == UNWANTED:
            return
        version = 0 if output.is_inference() else output._version
        watched = self._watched.get(output, version)
        if watched is not None:
            # The same tensor handed outwards through nested modules has one hook for all of them.
            # One that was written in place since is another value, with a gradient of its own.
            if site not in watched:
                watched.append(site)
            return
        if not self._room.take():
            self._recording.writer.not_observed(entry.path, TOO_DEEP)
            return
        sites = [site]
        self._watched.put(output, version, sites)
        register: Any = output.register_hook
        register(functools.partial(self._on_gradient, sites))

    def _watch_recomputed(self, entry: ModuleEntry, output: Any) -> None:
        # Reentrant checkpointing runs backward through the recomputed graph, so its outputs get
        # the hooks that the first run, without gradients, could not have.
        if entry.wrapper:
            return
        name = "output[0]" if isinstance(output, torch.Tensor) else "output"
        for path, leaf in leaves(output, name):
            if isinstance(leaf, torch.Tensor):
                self._watch(entry, path.removeprefix("output"), leaf)

    def _gradient(self, sites: list[int], gradient: torch.Tensor) -> None:
        try:
            summary = self._recording.observer.summary(gradient)
        except Unobservable:
            # Its output was noted as not observed already.
            return
        for site in sites:
            self._recording.summary(Phase.BACKWARD, site, summary)

    def forget(self) -> None:
        """Forget the tensors of the step that ended, and calls that ended without a word."""
        self._watched.clear()
        self.operators.forget()
        if stack := self._stack():
            _leave_active(stack, own_call=False)

    # -- evaluation activity ------------------------------------------------------------------

    def _evaluation_leaves(self, call: _Call, name: str, value: Any) -> None:
        recording, entry, rows = self._recording, call.entry, call.rows
        if entry is None or rows is None or recording.idle:
            return
        for path, leaf in leaves(value, name):
            site = recording.site(Phase.FORWARD, entry.path, path)
            if site == UNWANTED:
                continue
            if isinstance(leaf, torch.Tensor):
                try:
                    recording.observer.tensor(rows, site, 0, 0, _EVALUATION, leaf)
                except Unobservable as what:
                    self._unseen(entry, path, what)
            else:
                recording.observer.plain(rows, site, 0, 0, _EVALUATION, plain_value(leaf))

    def _unseen(self, entry: ModuleEntry, field: str, what: Unobservable) -> None:
        # Where shapes alone are computed, as when a framework builds a model, nothing is missed.
        if not isinstance(what, Valueless):
            self._recording.writer.not_observed(entry.path, f"{field} is {what}")

    def _evaluation_ends(
        self, call: _Call, module: torch.nn.Module, inputs: Any, output: Any
    ) -> None:
        drew = call.random is None or not torch.equal(call.random, torch.get_rng_state())
        self._evaluation_leaves(call, "input", inputs[1])
        single = isinstance(output, torch.Tensor)
        self._evaluation_leaves(call, "output[0]" if single else "output", output)
        self._evaluation_leaves(call, "training", module.training)
        self._evaluation_leaves(call, "draws", drew)
        if call.rows is not None:
            self._data.claim_for_evaluation(inputs, call.rows)


def _leave_active(stack: list[_Call], *, own_call: bool) -> None:
    """Take the calls off the stack that are no longer under way.

    Args:
        stack: The calls whose end was not seen.
        own_call: Whether the innermost call under way is a new one, not yet on the stack.
    """
    active = active_modules()
    if active is None:
        return
    under_way = iter(active[:-1] if own_call else active)
    for at, call in enumerate(stack):
        if call.key not in under_way:
            del stack[at:]
            return


def _takes_part(module: torch.nn.Module, args: Any) -> tuple[bool, bool]:
    """Whether a root's call is part of a training graph, and whether the root has parameters."""
    grad = torch.is_grad_enabled()
    first, trainable = False, False
    for parameter in module.parameters():
        first = True
        if parameter.requires_grad:
            trainable = True
            break
    if not grad:
        return False, first
    return trainable or any(leaf.requires_grad for leaf in tensors(args)), first
