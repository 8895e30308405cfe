"""Run a script as ``__main__`` and write down the state that it leaves behind.

    driver.py REPORT.json SCRIPT [ARGUMENT...]

The report holds digests of every module and optimizer that the script made and of the random
streams, so that a run under the recorder can be compared with one without, and the script needs
no change. Exceptions and exit codes of the script stay what they are.
"""

import hashlib
import json
import random
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

kept: list[torch.nn.Module | torch.optim.Optimizer] = []


def keep_what_is_made() -> None:
    """Hold all modules, also copies, and optimizers: most die when the script's main returns."""
    for cls, method in (
        (torch.nn.Module, "__init__"),
        (torch.nn.Module, "__setstate__"),
        (torch.optim.Optimizer, "__init__"),
    ):
        setattr(cls, method, keeping(getattr(cls, method)))


def keeping(original: Any) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(self is other for other in kept):
            kept.append(self)
        return original(self, *args, **kwargs)

    return method


def digest(value: Any) -> str:
    """A digest of a value; of a tensor by its bytes, dtype, shape and flags."""
    if isinstance(value, torch.Tensor):
        if value.is_meta or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return f"{type(value).__name__} {tuple(value.shape)} {value.dtype}"
        data = value.detach().cpu().contiguous().reshape(-1)
        raw = data.view(torch.uint8).numpy().tobytes() if data.numel() else b""
        head = f"{value.dtype} {tuple(value.shape)} {value.requires_grad} {value.is_leaf}"
        return f"{head} {hashlib.sha256(raw).hexdigest()[:16]}"
    if isinstance(value, np.ndarray):
        return digest(torch.from_numpy(value.astype(np.int64)))
    if isinstance(value, dict):
        return str({str(key): digest(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return str([digest(item) for item in value])
    if isinstance(value, int | float | str | bool | bytes | None):
        return repr(value)
    return type(value).__name__


def module_state(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    yield "training", str(module.training)
    for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
        yield name, digest(parameter)
        yield f"{name}.grad", digest(parameter.grad)
    for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
        yield name, digest(buffer)


def optimizer_state(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str]]:
    for number, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key != "params":
                yield f"group {number} {key}", digest(value)
        for index, parameter in enumerate(group["params"]):
            yield f"group {number} state {index}", digest(dict(optimizer.state.get(parameter, {})))


def belongs_to_compiler(thing: object) -> bool:
    """Whether torch.compile made it on its way: how many it makes is its own affair."""
    inside = ("torch.fx", "torch._dynamo", "torch._functorch", "torch.nn.modules.module")
    return isinstance(thing, torch.fx.GraphModule) or type(thing).__module__.startswith(inside)


def report() -> dict[str, str]:
    """Everything that the script left behind, by name."""
    torch.set_grad_enabled(True)
    lines = {
        "rng python": digest(random.getstate()),
        "rng numpy": digest(np.random.get_state(legacy=False)),
        "rng torch": digest(torch.get_rng_state()),
    }
    for number, thing in enumerate(one for one in kept if not belongs_to_compiler(one)):
        label = f"{number} {type(thing).__name__}"
        try:
            is_module = isinstance(thing, torch.nn.Module)
            state = module_state(thing) if is_module else optimizer_state(thing)
            lines |= {f"{label} {key}": value for key, value in state}
        except AttributeError:  # one whose constructor failed
            lines[label] = "not initialised"
    return lines


def main() -> None:
    target, script, *arguments = sys.argv[1:]
    keep_what_is_made()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(__file__=script, __spec__=None)
    sys.modules["__main__"] = main_module
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), main_module.__dict__)
    finally:
        Path(target).write_text(json.dumps(report(), indent=1))


if __name__ == "__main__":
    main()
