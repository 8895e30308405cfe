"""The guard around every hook: what keeps the recorder from changing the program.

A hook body runs with autograd, autocast, dispatch modes and function modes switched off, never
inside itself, never while a graph is compiled, and no error of it reaches the program.
"""

import contextlib
import functools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

_C: Any = torch._C
_HIDDEN_KEYS = (
    "AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutogradOther", "AutogradCPU", "AutogradCUDA",
    "AutogradXPU", "AutogradMeta", "AutogradNestedTensor", "AutogradFunctionality",
    "ADInplaceOrView", "Python", "PythonTLSSnapshot", "FuncTorchDynamicLayerFrontMode",
    "FuncTorchDynamicLayerBackMode",
)  # fmt: skip


def _hidden_keys() -> Any:
    keys = None
    for name in _HIDDEN_KEYS:
        key = getattr(_C.DispatchKey, name, None)
        if key is not None:
            keys = _C.DispatchKeySet(key) if keys is None else keys | _C.DispatchKeySet(key)
    return keys


_KEYS = _hidden_keys()


class Guard:
    """Wraps hook bodies.

    Attributes:
        active: Whether hooks do anything; set to False to stop recording for good.
        faults: How many hook bodies failed.
        seconds: Time spent in hook bodies.
    """

    def __init__(self) -> None:
        self.active = True
        self.faults = 0
        self.seconds = 0.0
        self.lock = threading.RLock()
        self._busy = threading.local()

    def hook(
        self, body: Callable[..., None], *, unless: Callable[..., bool] | None = None
    ) -> Callable[..., None]:
        """``body`` as a hook that may be given to torch.

        Args:
            body: Does the work.
            unless: Told the same, and asked first: whether there is nothing to do, as in a step
                that is not recorded. It touches no tensor, so that the guard can be spared.
        """
        busy = self._busy

        @functools.wraps(body)
        def guarded(*args: Any, **kwargs: Any) -> None:
            # First of all: dynamo traces into hooks, and must find nothing to guard on.
            if torch.compiler.is_compiling():
                return
            # What a hook computes while a graph is traced would become part of it.
            if _C._get_tracing_state() is not None:
                return
            if not self.active or getattr(busy, "on", False):
                return
            start = time.perf_counter()
            try:
                if unless is not None and unless(*args, **kwargs):
                    return
                busy.on = True
                with self.lock, _C._ExcludeDispatchKeyGuard(_KEYS), _C.DisableTorchFunction():
                    body(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - no fault of ours may reach the program
                self._report(error)
            finally:
                busy.on = False
                self.seconds += time.perf_counter() - start

        return guarded

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        """Let no hook of this thread do anything."""
        before, self._busy.on = getattr(self._busy, "on", False), True
        try:
            yield
        finally:
            self._busy.on = before

    def _report(self, error: Exception) -> None:
        self.faults += 1
        if self.faults > 1:
            return
        frame = traceback.extract_tb(error.__traceback__)[-1]
        warn(
            f"an observation was lost ({type(error).__name__}: {error}, at"
            f" {frame.filename}:{frame.lineno}); the trace is marked incomplete"
        )


def inside_backward() -> bool:
    """Whether the calling thread runs a backward pass."""
    return bool(_C._current_graph_task_id() >= 0)


def inside_transform() -> bool:
    """Whether a functorch transform (vmap, grad, ...) is active, whose tensors have no values."""
    return _C._functorch.peek_interpreter_stack() is not None


def warn(message: str) -> None:
    """One line to the program's stderr."""
    try:
        sys.stderr.write(f"traceparity: {message}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        # A closed or missing stderr is the program's choice; there is nobody to tell.
        return
