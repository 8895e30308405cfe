"""Laws of bounds: finite values, clipping that clips, outputs that are no longer than allowed."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.roles import Role
from traceparity.invariants.state import Ids
from traceparity.invariants.tables import Gradient
from traceparity.tracefmt.records import Kind, Phase

FINITE = Rule(
    "bounds",
    "finite",
    "the loss, gradients, optimizer states and updated parameters are finite",
    "look at the first module whose output is not finite, and at its inputs",
)
CLIP_RESPECTED = Rule(
    "bounds",
    "clip-respected",
    "after clip_grad_norm_ the gradients that the update uses have the norm that it left",
    "clip after the last backward pass and after scaler.unscale_(optimizer), and before the update",
)
LENGTH_RESPECTED = Rule(
    "bounds",
    "length-respected",
    "a module that is given a largest length returns nothing longer",
    "is the limit computed from the prompt before or after it was cut?",
)
_DECIDING = (Phase.LOSS, Phase.BACKWARD, Phase.GRADIENT, Phase.OPTIMIZER)
_SCALED = (Phase.LOSS, Phase.BACKWARD, Phase.GRADIENT)
_SLACK = 0.01
_PROMPTS = ("input[0]", "input[ids]", "input[input_ids]", "input[inputs]")


class Finite:
    """An infinity or NaN where none may be."""

    def __init__(self) -> None:
        self._told = False

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        if self._told or not facts.columns.nonfinite.any():
            return
        # An overflow that costs one update is how a gradient scaler finds its scale.
        deciding = [phase for phase in _DECIDING if not facts.skipped or phase not in _SCALED]
        rows = facts.trained(np.flatnonzero(facts.columns.nonfinite))
        rows = rows[np.isin(facts.phase(rows), deciding)]
        if not len(rows):
            return
        self._told = True
        row = int(rows[0])
        phase = Phase(int(facts.phase(rows[:1])[0]))
        yield facts.finding(
            FINITE, phase, facts.component(row), facts.field(row), "finite values",
            f"{int(facts.columns.nonfinite[row])} infinities or NaNs", row=row,
        )  # fmt: skip

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())


class ClipRespected:
    """The norm that clipping has left is not the norm that the update uses."""

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        clips = [clip for clip in facts.clips if clip.function == "clip_grad_norm_"]
        # With several calls or optimizers nobody knows which gradients each one is about.
        if len(clips) != 1 or len(facts.updated) != 1:
            return
        clip, used = clips[0], used_norm(facts)
        total, limit = clip.total_norm, clip.limit
        if not (math.isfinite(used) and math.isfinite(total) and limit > 0):
            return
        seen = self._wrong(facts, total, limit, used)
        if seen:
            yield facts.finding(
                CLIP_RESPECTED, Phase.GRADIENT, clip.function, "total_norm",
                f"norm {min(total, limit):.4g}: {total:.4g} was to be clipped to {limit:.4g}",
                seen, row=clip.row,
            )  # fmt: skip

    def _wrong(self, facts: StepFacts, total: float, limit: float, used: float) -> str:
        if total == 0 and used > 0:
            return f"norm {used:.4g}: there was nothing to clip yet"
        if total > limit * (1 + _SLACK) and math.isclose(used, total, rel_tol=1e-4):
            return f"norm {used:.4g}: clipping has changed nothing"
        scale = facts.state.counters.get("scaler.scale")
        if isinstance(scale, float) and scale > 2 and used > 0:
            scaled = math.isclose(used * scale, min(total, limit), rel_tol=_SLACK)
            if scaled and total > limit:
                return f"norm {used:.4g}: gradients were clipped while scaled by {scale:g}"
        return ""

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())


def used_norm(facts: StepFacts) -> float:
    """Norm of all gradients that the step's updates used; NaN where one of them is unknown."""
    received = facts.received
    norms = received.norm[received.kind != Gradient.NONE].astype(np.float64)
    return float(np.sqrt(np.square(norms).sum()))


class LengthRespected:
    """A call that was told a largest length gives more."""

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        rows = facts.rows(Role.INPUT)
        for row in rows[facts.columns.kind[rows] == Kind.SCALAR].tolist():
            name = facts.field(row)
            if name in ("input[max_new_tokens]", "input[max_length]"):
                yield from self._call(facts, row, name)

    def _call(self, facts: StepFacts, row: int, name: str) -> Iterator[Finding]:
        limit: Any = facts.scalar(row)
        prompt = self._length(facts, row, facts.rows(Role.INPUT)[::-1], _PROMPTS)
        written = self._length(facts, row, facts.rows(Role.OUTPUT), ("output[0]",))
        if not isinstance(limit, int) or limit <= 0 or prompt is None or written is None:
            return
        most = limit + prompt if name == "input[max_new_tokens]" else max(limit, prompt)
        if written > most:
            yield facts.finding(
                LENGTH_RESPECTED, Phase.FORWARD, facts.component(row), "output[0]",
                f"at most {most} tokens: {name[6:-1]} is {limit}, the input has {prompt}",
                f"{written} tokens", row=row,
            )  # fmt: skip

    def _length(
        self, facts: StepFacts, call: int, rows: Ids, fields: tuple[str, ...]
    ) -> int | None:
        """The last dimension of whole numbers that the same call took or gave."""
        component = facts.component(call)
        # Keyword arguments are told when a call has ended, between its inputs and its output.
        near = rows[rows < call] if fields is _PROMPTS else rows[rows > call]
        for row in near.tolist():
            if facts.component(row) == component and facts.field(row) in fields:
                whole = facts.dtype(row).startswith(("int", "uint"))
                return facts.shape(row)[-1] if whole and facts.shape(row) else None
        return None

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())
