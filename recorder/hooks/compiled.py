"""Modules compiled in place: `Module.compile` puts a compiled call where no hook is called."""

import weakref
from typing import Any

import torch

from traceparity.recorder.guard import Guard
from traceparity.recorder.hooks.modules import ModuleHooks
from traceparity.recorder.patches import Patches, leave_no_frame


class CompiledCalls:
    """Sees the calls of modules that were compiled in place, from outside."""

    def __init__(self, guard: Guard, modules: ModuleHooks) -> None:
        self._begins = guard.hook(modules.black_box_begins)
        self._ends = guard.hook(modules.ends)

    def install(self, patches: Patches) -> None:
        """Begin to see modules that are compiled from now on."""
        patches.after(torch.nn.Module, "compile", self._compiled)

    def _compiled(self, result: Any, args: Any, kwargs: Any) -> None:
        module = args[0]
        compiled = module._compiled_call_impl
        if compiled is not None:
            module._compiled_call_impl = self._around(weakref.ref(module), compiled)

    def _around(self, ref: "weakref.ref[torch.nn.Module]", compiled: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            # As in every hook: a larger region that calls this one must find nothing to guard on.
            if torch.compiler.is_compiling():
                return compiled(*args, **kwargs)
            module = ref()
            self._begins(module, args)
            try:
                output = compiled(*args, **kwargs)
            except Exception as error:
                self._ends(module, args)
                leave_no_frame(error)
                raise
            self._ends(module, args, kwargs, output)
            return output

        return call
