"""The end state: fingerprints of all that a training ends with, to prove that nothing changed it.

Taken in a recorded process and in one that is not; both keep hold of their optimizers and models,
and write the fingerprints when they exit.
"""

import atexit
import gc
import json
import os
import random
import sys
from collections.abc import Iterator
from multiprocessing import util
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch.optim.optimizer import register_optimizer_step_post_hook

from traceparity.recorder.destination import rank_and_world
from traceparity.recorder.digest import dense_digest, seed_of
from traceparity.recorder.guard import warn
from traceparity.recorder.launch import END_STATE
from traceparity.recorder.recording import plain_value

_LAST = -100
"""Priority among the finalizers of multiprocessing: after those of the program."""


def keep() -> None:
    """Begin to keep hold of what this process trains; called once torch is imported."""
    state = _EndState(Path(os.environ[END_STATE]))
    register_optimizer_step_post_hook(state.updated)
    atexit.register(state.write)
    state.write_as_child(None)
    # Children of multiprocessing end without atexit and clear finalizers when they start.
    util.register_after_fork(state, state.write_as_child)


class _EndState:
    """The optimizers that were stepped, and the models that their parameters belong to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = os.getpid()
        self._optimizers: list[Any] = []
        self._roots: list[torch.nn.Module] = []
        self._written = False
        self._at_first = dict(_generators())

    def write_as_child(self, _: object) -> None:
        util.Finalize(None, self.write, exitpriority=_LAST)

    def updated(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer was stepped."""
        if os.getpid() != self._pid:
            # A fork: what the parent trained is not ours.
            self._pid, self._optimizers, self._roots = os.getpid(), [], []
        if any(optimizer is known for known in self._optimizers):
            return
        try:
            self._optimizers.append(optimizer)
            known = {id(root) for root in self._roots}
            self._roots += [root for root in _roots(optimizer) if id(root) not in known]
        except Exception as error:  # noqa: BLE001 - the program knows nothing of us
            warn(f"end state: {type(error).__name__}: {error}")

    def write(self) -> None:
        """Write the fingerprints, if this process has trained."""
        if self._written or not self._optimizers or os.getpid() != self._pid:
            return
        self._written = True
        try:
            text = json.dumps(dict(self._entries()))
            number = rank_and_world()[0]
            while (path := self._folder / f"{number}.json").exists():
                number += 1
            path.write_text(text)
        except Exception as error:  # noqa: BLE001 - the program knows nothing of us
            warn(f"end state: {type(error).__name__}: {error}")

    def _entries(self) -> Iterator[tuple[str, str]]:
        for number, root in enumerate(self._roots):
            named = [*root.named_parameters(), *root.named_buffers()]
            for name, tensor in named:
                yield f"model[{number}].{name}", _fingerprint(tensor)
        for number, optimizer in enumerate(self._optimizers):
            yield from _optimizer_entries(f"optimizer[{number}]", optimizer)
        for name, state in _generators():
            # One that nobody seeds or uses begins otherwise in every process.
            yield name, "untouched" if state == self._at_first.get(name) else state


def _roots(optimizer: Any) -> list[torch.nn.Module]:
    """The models that hold an optimizer's parameters, in the order of these."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    place = {id(each): number for number, each in enumerate(parameters)}
    found: dict[int, tuple[int, torch.nn.Module]] = {}
    for thing in gc.get_objects():
        # By type alone: asking an object may run the program's code.
        if issubclass(type(thing), torch.nn.Module):
            places = [place[id(each)] for each in thing.parameters() if id(each) in place]
            if places:
                found[id(thing)] = (min(places), thing)
    inner = {
        id(child)
        for _, module in found.values()
        for child in module.modules()
        if child is not module
    }
    outer = [entry for key, entry in found.items() if key not in inner]
    return [module for _, module in sorted(outer, key=lambda entry: entry[0])]


def _optimizer_entries(name: str, optimizer: Any) -> Iterator[tuple[str, str]]:
    number = 0
    for index, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key != "params":
                yield f"{name}.group[{index}].{key}", _fingerprint(value)
        for parameter in group["params"]:
            yield f"{name}.parameter[{number}]", _fingerprint(parameter)
            for key, value in optimizer.state.get(parameter, {}).items():
                yield f"{name}.parameter[{number}].{key}", _fingerprint(value)
            number += 1


def _generators() -> Iterator[tuple[str, str]]:
    """The random streams: their states tell how much was drawn from them."""
    yield "rng.python", _of_text(repr(random.getstate()))
    yield "rng.torch", _fingerprint(torch.get_rng_state())
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for device, state in enumerate(torch.cuda.get_rng_state_all()):
            yield f"rng.cuda[{device}]", _fingerprint(state)
    if (numpy := sys.modules.get("numpy")) is not None:
        _, keys, *position = numpy.random.get_state(legacy=True)
        yield "rng.numpy", _of_text(f"{keys.tolist()} {position}")


def _fingerprint(value: Any) -> str:
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        plain = value.detach().cpu().contiguous()
        dtype = str(plain.dtype).removeprefix("torch.")
        return dense_digest(plain, seed_of(dtype, tuple(plain.shape))).hex()
    return _of_text(repr(plain_value(value)))


def _of_text(text: str) -> str:
    return str(xxhash.xxh3_128_hexdigest(text.encode(errors="replace")))
