"""Which batches of a step were trained on: those whose gradients reached an update that was made.

A batch is taken for trained on unless its step shows that it was not. What a recording leaves out,
or what happens inside compiled code, shows nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceparity.tracefmt.records import Columns, Flag, Phase

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

NO_UPDATE = "no update followed"
NO_BACKWARD = "no backward pass followed"
CLEARED = "its gradients were cleared before the update"
SKIPPED = "the gradient scaler left the update out"
Phases = npt.NDArray[np.int8]
_EVALUATION = int(Flag.EVALUATION | Flag.RECOMPUTED)


@dataclass(slots=True)
class _MicroBatch:
    """What a step shows of one of its forward and backward passes.

    Attributes:
        backward: Whether a backward pass was seen.
        loss_first: Whether that began before any forward pass did.
        began_empty: Whether the parameters had no gradients, or zeros, when it began.
        began_bare: Whether none had any, zeros included.
        zeroed: Whether gradients were set to zero after its backward pass began.
        forwards: For each module that was called how often.
        reached: For each module how many gradients of outputs arrived.
        gradients: Digest of each parameter's gradient after it.
    """

    backward: bool = False
    loss_first: bool = False
    began_empty: bool = False
    began_bare: bool = False
    zeroed: bool = False
    forwards: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    gradients: dict[str, bytes] = field(default_factory=dict)


class StepTraining:
    """Takes the chunks of one step of one process, and says what its batches came to."""

    def __init__(self, trace: "Trace", phases: Phases, *, tail: bool) -> None:
        """Start with nothing.

        Args:
            trace: Whose step it is.
            phases: Of each site of the trace.
            tail: Whether the step is what is left after the last update of several.
        """
        capture = trace.header.capture
        self._blind = any(capture.get(name) for name in ("phases", "include", "exclude"))
        self._trace = trace
        self._phases = phases
        self._tail = tail
        self._micro: dict[int, _MicroBatch] = {}
        self._received: dict[str, bytes] = {}
        self._updated = self._skipped = self._hidden = False

    def take(self, columns: Columns) -> None:
        """The next chunk of the step."""
        if self._blind:
            return
        phases = self._phases[columns.site]
        wanted = (phases >= Phase.FORWARD) & (phases <= Phase.OPTIMIZER)
        for row in np.flatnonzero(wanted & ((columns.flags & _EVALUATION) == 0)).tolist():
            self._row(columns, row)

    def _row(self, columns: Columns, row: int) -> None:
        site = self._trace.sites[columns.site[row]].site
        micro = self._micro.setdefault(int(columns.microbatch[row]), _MicroBatch())
        if site.phase == Phase.FORWARD:
            if site.field == "output[0]" or site.field.startswith("output["):
                number = int(columns.call[row]) + 1
                micro.forwards[site.component] = max(micro.forwards[site.component], number)
        elif site.phase == Phase.LOSS:
            micro.loss_first |= not micro.backward and not micro.forwards
            micro.backward = True
        elif site.phase == Phase.BACKWARD:
            self._backward_row(columns, row, micro)
        elif site.phase == Phase.GRADIENT:
            if site.component == "zero_grad":
                micro.zeroed |= micro.backward
            elif site.field == "grad":
                self._updated = True
                self._received[site.component] = columns.digest[row].tobytes()
        elif site.field == "skipped":
            self._skipped = True
        elif site.field == "unseen_update":
            self._hidden = True
        else:
            self._updated = True

    def _backward_row(self, columns: Columns, row: int, micro: _MicroBatch) -> None:
        site = self._trace.sites[columns.site[row]].site
        if site.component == "gradients":
            before = self._trace.scalar(columns, row)
            if isinstance(before, dict) and not micro.backward:
                micro.began_empty = not (before.get("kept") or before.get("unknown"))
                micro.began_bare = micro.began_empty and not before.get("zero")
        elif site.field.startswith("grad_output"):
            micro.reached[site.component] += 1
            micro.backward = True
        elif site.field == "grad":
            micro.gradients[site.component] = columns.digest[row].tobytes()

    @property
    def resumes(self) -> bool:
        """Whether the step begins with a backward pass of what an earlier one called."""
        first = self._micro.get(0)
        return first is not None and first.loss_first

    def untrained(self, claims: Sequence[tuple[str, int]]) -> list[str]:
        """For each batch why it was not trained on; empty where nothing shows that.

        Args:
            claims: Loader and micro-batch of each batch that the step's training used, in order.
        """
        if self._blind or self._hidden:
            return [""] * len(claims)
        if self._tail and not self._updated:
            return [NO_UPDATE] * len(claims)
        if self._skipped and not self._updated:
            return [SKIPPED] * len(claims)
        return [self._of(number, claims) for number in range(len(claims))]

    def _of(self, number: int, claims: Sequence[tuple[str, int]]) -> str:
        loader, micro = claims[number]
        following = [at for name, at in claims[number + 1 :] if name == loader]
        # It may be used again until the next batch of its loader is.
        last = max((at for at in self._micro), default=micro)
        if following:
            last = max(micro, following[0] - 1)
        used = [at for at in range(micro, last + 1) if at in self._micro]
        if not any(self._micro[at].backward for at in used):
            some = any(each.backward for each in self._micro.values())
            return NO_BACKWARD if some and used else ""
        peers = [at for at, claim in enumerate(claims) if claim == claims[number]]
        if used == [micro] and peers.index(number) < self._unreached(micro, len(peers)):
            return NO_BACKWARD
        return CLEARED if self._cleared_after(used[-1]) else ""

    def _unreached(self, micro: int, batches: int) -> int:
        """How many of the batches that share a micro-batch no gradient can have come from."""
        facts = self._micro[micro]
        roots = [
            name
            for name, calls in facts.forwards.items()
            if calls >= batches and facts.reached[name] and not _has_parent(name, facts.forwards)
        ]
        reached = max((facts.reached[name] for name in roots), default=batches)
        return max(0, batches - reached)

    def _cleared_after(self, micro: int) -> bool:
        """Whether gradients were gone when a later pass began, and nothing brought them back."""
        own = self._micro[micro]
        later = [self._micro[at] for at in sorted(self._micro) if at > micro]
        # A pass may leave zeros by itself; it leaves no parameter without a gradient.
        zeroed = own.zeroed or any(each.zeroed for each in later[:-1])
        if not any(each.began_bare or (each.began_empty and zeroed) for each in later):
            return False
        # A program may keep gradients elsewhere and put them together before the update.
        left = later[-1].gradients
        return bool(own.gradients) and all(
            name in left and self._received.get(name) == left[name] for name in own.gradients
        )


def _has_parent(name: str, names: Counter[str]) -> bool:
    return bool(name) and any(
        other != name and (not other or name.startswith(f"{other}.")) for other in names
    )
