"""Zoom: the steps that diverge are run again and recorded ever more closely.

First with all values, which decides what sketches left open and tells chance from cause; then with
each operator of that part of the step in which the runs part.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from traceparity.differ.diff import as_start, describe_place, diff_runs
from traceparity.differ.names import is_group, operator_of
from traceparity.differ.policy import PHASES, Policy
from traceparity.differ.result import DiffResult, Divergence, Outcome
from traceparity.recorder.settings import Settings
from traceparity.tracefmt.location import Location

PROGRAM = "program"
"""The component under which operators outside of modules are recorded."""
_DURING = {"backward": ", in the backward pass,", "gradient": ", between backward and update,"}
_PAIRED_IN_PARTS = ("forward", "gradient", "optimizer")
"""Phases whose operators answer one another where updates are cut into other micro-batches: results
for samples follow one another, and what comes after the backward passes is done once. A loss, and
what a backward pass makes of it, is scaled by each program in its own way."""
_ROUND_OFF = 1e-5
"""Relative distance up to which sums of float32 may differ that are taken over other batches."""
Rerun = Callable[[Settings, str], Path]
"""Runs the command of one side again with these settings; the text tells this run from others."""


@dataclass(frozen=True, slots=True)
class Zoomed:
    """What a closer look has shown.

    Attributes:
        reason: What it comes to, in one sentence.
        comparison: The closest comparison that was made; None where none was.
    """

    reason: str
    comparison: DiffResult | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a step whose operators are recorded.

    Attributes:
        operators: The components of the operators.
        phases: The phases that are recorded with them.
    """

    operators: tuple[str, ...]
    phases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """How both sides of a comparison are run again.

    Attributes:
        reference: Runs the reference.
        target: Runs the target, or the part of it in which the runs part.
        settings: What was recorded before.
        policy: The relation that was judged.
        archived: The trace that the reference was judged by; None where it had just been run.
    """

    reference: Rerun
    target: Rerun
    settings: Settings
    policy: Policy
    archived: Location | None = None

    def compared(self, step: int, target_step: int, part: _Part | None = None) -> DiffResult:
        """Run both sides again and compare one step of theirs, recorded with all values.

        Args:
            step: The step of the reference.
            target_step: The step of the target.
            part: The part of it that is recorded, with its operators; None for all, without them.
        """
        name = "operators" if part else "values"
        closer = replace(
            self.settings, capture="values", every=1, phases=part.phases if part else (),
            include=(), exclude=(), operators=part.operators if part else (),
        )  # fmt: skip
        traces = [
            rerun(replace(closer, steps=((number, number + 1),)), name)
            for rerun, number in ((self.reference, step), (self.target, target_step))
        ]
        align = self.policy.align
        if align.kind == "resume":
            align = replace(align, step_offset=step - target_step)
        if part:
            align = replace(align, phases=_both(part.phases, align.phases))
        # How often a sample is seen is a question for the whole run.
        policy = replace(self.policy, align=align, coverage=None)
        return diff_runs(traces[0], [traces[1]], policy)


def zoom(result: DiffResult, sides: Sides) -> Zoomed:
    """Look more closely at a comparison that failed, or that abstained for lack of values.

    Args:
        result: The comparison.
        sides: How both sides are run again.
    """
    first = result.first
    if first is not None and first.field == "step":
        return Zoomed("only one run has the step, so there is nothing to look into")
    step = result.undecided_step if first is None else first.step
    if step is None:
        return Zoomed("nothing was left open that recording more closely would decide")
    offset = result.alignment.step_offset or 0
    target_step = step - offset if first is None else first.target_step
    closer = sides.compared(step, target_step)
    if closer.outcome is Outcome.PASS:
        if not _is_what_was_archived(closer, step, sides):
            return Zoomed(
                f"run again, the reference's command gives another step {step} than the archived"
                " trace has, the target's: what made the trace has to be run to look closer"
            )
        what = "the difference does not come again" if first else "with all values they agree"
        return Zoomed(f"{what}: step {step} was run again on both sides, and they agree", closer)
    if closer.first is None:
        return Zoomed(f"run again, step {step} cannot be judged: {closer.reason}", closer)
    is_in_parts = sides.policy.align.kind == "accumulation"
    # With all values an earlier place may well show: where sketches left something open, and where
    # results of micro-batches can be put together, which sketches of them cannot.
    may_move = result.undecided_step is not None or (
        is_in_parts and sides.settings.capture != "values"
    )
    if first is not None and not may_move and _place(closer.first) != _place(first):
        moved = f"; before it was {describe_place(first)}, so chance has a part in it"
    else:
        moved = ""
    part = _part_of(closer.first)
    if part is None or (is_in_parts and closer.first.phase not in _PAIRED_IN_PARTS):
        place = describe_place(closer.first)
        size = _rounded(closer) if is_in_parts else ""
        return Zoomed(f"with all values the runs part at {place}{size}{moved}", closer)
    inside = sides.compared(step, target_step, part)
    size = _rounded(inside) if is_in_parts else ""
    return Zoomed(f"{_operator(inside)}{size}{moved}", inside)


def _is_what_was_archived(closer: DiffResult, step: int, sides: Sides) -> bool:
    """Whether the reference, run again, does in the step what its archived trace says."""
    if sides.archived is None:
        return True
    again = [Path(closer.reference.path)]
    found = diff_runs(sides.archived, again, as_start(sides.policy)).first
    return found is None or found.step != step


def _both(recorded: tuple[str, ...], declared: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(phase for phase in PHASES if phase in recorded and phase in declared)


def _place(divergence: Divergence) -> tuple[str, str]:
    return divergence.component, divergence.field


def _part_of(first: Divergence) -> _Part | None:
    """The operators among which the value came about; None where none computed it."""
    match first.phase:
        case "forward":
            module = _module_to_watch(first)
            if module is None:
                return None
            # A name is no glob: what stands for itself is matched by itself.
            return _Part((module or "*",), ("state", "data", "forward"))
        case "loss":
            return _Part((PROGRAM,), ("state", "loss"))
        case "backward":
            # What comes after a module in the forward pass makes the gradient of its output.
            return _Part(("*",), ("state", "loss", "backward"))
        case "gradient":
            return _Part((PROGRAM,), ("state", "gradient"))
        case "optimizer" if not is_group(first.component):
            return _Part(("optimizer*",), ("state", "gradient", "optimizer"))
        case _:
            return None


def _module_to_watch(first: Divergence) -> str | None:
    """The module inside which the value came about; None where none did."""
    if first.field.startswith("input"):
        # What a module is given was computed by the one that calls it.
        return first.component.rpartition(".")[0] if first.component else None
    if first.field == "value":
        # A buffer that the pass changed belongs to the module that changes it.
        return first.component.rpartition(".")[0]
    return first.component if first.field.startswith("output") else None


def _operator(inside: DiffResult) -> str:
    first = inside.first
    if first is None:
        again = "agree" if inside.outcome is Outcome.PASS else f"cannot be judged: {inside.reason}"
        return f"the difference does not come again: with operators recorded, both runs {again}"
    name = operator_of(first.field)
    if not name:
        return f"no operator differs before {describe_place(first)}"
    what = "is given another value" if ".input[" in first.field else "gives another result"
    if first.kind in ("missing", "extra"):
        what = f"is called by the {'reference' if first.kind == 'missing' else 'target'} only"
    component = first.component or first.root_class or "the model"
    during = _DURING.get(first.phase, "")
    said = f"the first operator that differs is {name} in {component}{during}{_where(first)}"
    came_from = [found.detail for found in first.evidence if found.what == "operator"]
    return "; ".join([f"{said}: it {what}", *came_from])


def _rounded(inside: DiffResult) -> str:
    """Whether a difference is what batches of other sizes bring about by themselves."""
    first = inside.first
    distance = None if first is None else first.metrics.rel_l2
    if distance is None or distance > _ROUND_OFF or first is None or first.kind != "value":
        return ""
    return (
        f"; the relative distance of {distance:.1e} is what rounding comes to in batches of"
        " other sizes"
    )


def _where(first: Divergence) -> str:
    lines = list(dict.fromkeys(filter(None, (first.location, first.target_location))))
    return f" at {' (target: '.join(lines)}{')' * (len(lines) - 1)}" if lines else ""
