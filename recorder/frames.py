"""Frames: which module calls and optimizer steps the calling thread is really inside of.

Hooks that come before a call and hooks that come after it do not always pair up: torch runs none
after a `KeyboardInterrupt` in a forward pass, and none after an optimizer's step that raised. The
Python stack is the truth; it is looked at where what the hooks say looks odd, since that is slow.
"""

import sys
from typing import TYPE_CHECKING, Any

from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

if TYPE_CHECKING:
    from types import FrameType

_CALL = ("_wrapped_call_impl", torch_module.__file__)
_STEP = ("wrapper", torch_optimizer.__file__)


def active_modules() -> list[int] | None:
    """The ids of the modules whose calls are under way, the outermost first; None if unknown."""
    return _active(*_CALL)


def active_steps() -> list[int] | None:
    """The ids of the optimizers whose steps are under way, the outermost first; None if unknown."""
    return _active(*_STEP)


def _active(name: str, file: str) -> list[int] | None:
    found: list[int] = []
    # By name: a compiled frame runs other code under the name of its own.
    names = (name, f"torch_dynamo_resume_in_{name}")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == file and code.co_name.startswith(names):
            owner: Any = frame.f_locals.get("self")
            if owner is None:
                return None
            found.append(id(owner))
        frame = frame.f_back
    return found[::-1]
