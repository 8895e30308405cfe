"""Operators: what each operator inside a chosen component is given and gives, in order of calls.

A dispatch mode sees the operators below autograd and calls them as they would have been called. It
is active only in recorded steps, while the forward pass of a chosen module, a backward pass or the
step of a chosen optimizer runs; where what lies between them is chosen too, from the first forward
pass to the update.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils import _python_dispatch

from traceparity.recorder.guard import inside_backward
from traceparity.recorder.operator_place import PROGRAM, Places, Running
from traceparity.recorder.operator_watch import OperatorWatch, Watching
from traceparity.recorder.patches import Patches, leave_no_frame
from traceparity.recorder.recording import Recording
from traceparity.recorder.registry import Registry
from traceparity.tracefmt.records import Phase

_PASS, _UPDATE, _WHOLE_STEP = "pass", "update", "step"
"""For what a mode is entered that is not entered for the call of a module."""


class OperatorHooks:
    """Decides when operators are watched."""

    def __init__(self, recording: Recording, running: Running, optimizers: Registry) -> None:
        """Prepare.

        Args:
            recording: The recording.
            running: Asked which module runs.
            optimizers: The optimizers by name.
        """
        self._recording = recording
        self._running = running
        self._optimizers = optimizers
        self._places = Places(recording, running)
        self._watch = OperatorWatch(recording, self._places)
        guard = recording.guard
        self._begins, self._ends = guard.hook(self._watch.begins), guard.hook(self._watch.ends)
        self._tell_of_pass = guard.hook(self._told_of_pass)
        self._tell_of_update = guard.hook(self._told_of_update)
        self._entered = threading.local()
        # A whole step is watched in one thread, which is the one that makes the update.
        self._whole_step = False

    def watch_modules(self) -> list[Any]:
        """Begin, after the hooks that follow which module runs; returns the handles."""
        if not self._recording.settings.operators:
            return []
        # Not in the guard, which hides dispatch modes from what it calls.
        return [
            torch_module.register_module_forward_pre_hook(self._before),
            torch_module.register_module_forward_hook(self._after, always_call=True),
        ]

    def watch_passes(self, patches: Patches) -> list[Any]:
        """Begin to see backward passes and updates, after their own hooks; returns the handles."""
        if not self._recording.settings.operators:
            return []
        patches.replace(torch.autograd, "_engine_run_backward", self._pass)
        return [
            torch_optimizer.register_optimizer_step_pre_hook(self._update_begins),
            torch_optimizer.register_optimizer_step_post_hook(self._update_ends),
        ]

    def remove(self) -> None:
        """Stop, where a recording ends in the midst of a call."""
        self._leave()

    def forget(self) -> None:
        """A step began: what was followed in the one before is over, however it ended."""
        self._places.forget()
        self._watch.forget()
        self._entered.__dict__.pop("called", None)
        self._whole_step = False

    # -- modules ------------------------------------------------------------------------------

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        path = self._running() if self._wanted(*Phase) else None
        if path is None or path == PROGRAM:
            return
        if self._watch.chooses(PROGRAM) and not self._whole_step and self._may_stay():
            self._whole_step = True
            self._enter(_WHOLE_STEP)
        if self._watch.chooses(path) and "called" not in self._entered.__dict__:
            self._entered.called = id(module)
            self._watch.count_anew(Phase.FORWARD)
            if not self._watches():
                self._enter(id(module))

    def _after(self, module: torch.nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or self._entered.__dict__.get("called") != id(module):
            return
        del self._entered.called
        self._leave(id(module))

    # -- backward passes and updates ----------------------------------------------------------

    def _pass(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not self._wanted(*Phase) or inside_backward():
                return run(*args, **kwargs)
            self._tell_of_pass()
            if self._wanted(Phase.BACKWARD) and not self._watches():
                self._enter(_PASS)
            try:
                return run(*args, **kwargs)
            except BaseException as error:
                leave_no_frame(error)
                raise
            finally:
                self._places.pass_ends()
                self._leave(_PASS)

        return watched

    def _told_of_pass(self) -> None:
        self._watch.count_anew(Phase.BACKWARD)
        self._places.pass_begins()

    def _update_begins(self, optimizer: Any, *_: Any) -> None:
        if not self._wanted(Phase.OPTIMIZER):
            return
        self._tell_of_update(optimizer)
        if self._places.updating and self._may_stay():
            self._enter(_UPDATE)

    def _told_of_update(self, optimizer: Any) -> None:
        name = self._optimizers.name(optimizer)
        if self._watch.chooses(name):
            self._watch.count_anew(Phase.OPTIMIZER)
            self._places.update_begins(name)

    def _update_ends(self, optimizer: Any, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._places.update_ends(self._optimizers.name_in_use(optimizer))
        self._leave(_UPDATE)
        if not inside_backward():
            self._leave(_WHOLE_STEP)

    # -- the mode of this thread --------------------------------------------------------------

    def _wanted(self, *phases: Phase) -> bool:
        """Whether operators of any of the phases are recorded now."""
        if torch.compiler.is_compiling() or not self._recording.guard.active:
            return False
        chosen = self._recording.settings.phases
        return not self._recording.idle and (
            not chosen or any(phase.label in chosen for phase in phases)
        )

    def _watches(self) -> bool:
        return "mode" in self._entered.__dict__

    def _may_stay(self) -> bool:
        """Whether a mode that outlasts the call which enters it stands in nobody's way.

        A mode of the program that is active now may end before ours, which would then be taken
        for it.
        """
        return _python_dispatch._get_current_dispatch_mode() is None

    def _enter(self, owner: int | str) -> None:
        mode: Any = Watching(self._begins, self._ends)
        self._entered.mode, self._entered.owner = mode, owner
        self._places.watch_begins()
        mode.__enter__()

    def _leave(self, owner: int | str | None = None) -> None:
        """Leave the mode of this thread if it was entered for ``owner``; for any without one."""
        held = self._entered.__dict__
        if "mode" not in held or owner not in (None, held["owner"]):
            return
        if _python_dispatch._get_current_dispatch_mode() is not held["mode"]:
            # The program has entered one of its own since, and leaves it before we leave ours.
            held["owner"] = _WHOLE_STEP
            return
        mode = held.pop("mode")
        del held["owner"]
        mode.__exit__(None, None, None)
