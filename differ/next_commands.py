"""Commands to run next: look at the step, or record it again with all values."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceparity.differ.observation import Observation
from traceparity.differ.result import MICRO_BATCHES, Divergence
from traceparity.tracefmt.location import RemoteLocation

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

_TOLD = frozenset({
    "missing", "extra", "hyperparameter", "flag", "sample_id", "order", "rng", "shape", "device",
})  # fmt: skip
"""Kinds of differences of which values would tell nothing more."""


def next_commands(first: Divergence, reference: "Trace", target: "Trace") -> tuple[str, ...]:
    """Commands that show more of the first divergence."""
    if first.field == "step" and first.reference is None and first.target is None:
        return ()
    # An update as a whole is no site: what tells its micro-batches apart is the data.
    whole = first.field == MICRO_BATCHES
    site = "data:*" if whole else f"{first.phase}:{first.component}:*"
    renamed = first.reference_name.rpartition(":")[0]
    shown = [
        shlex.join(["tp-show", str(trace.path), "--step", str(step), "--site", name])
        for trace, step, name in (
            (reference, first.step, f"{renamed}:*" if renamed else site),
            (target, first.target_step, site),
        )
    ]
    if first.kind in _TOLD or (_is_known(first.reference) and _is_known(first.target)):
        return tuple(shown)
    steps = {reference.path: {first.step}}
    steps.setdefault(target.path, set()).add(first.target_step)
    again = [
        record_again(trace, sorted(steps[trace.path]), "values")
        for trace in (reference, target)
        if trace.header.capture.get("capture") != "values"
    ]
    # A run that is compared with itself is recorded once, with both steps.
    return (*dict.fromkeys(again), *shown)


def _is_known(seen: Observation | None) -> bool:
    """Whether a value is there in full, so that no other recording says more of it."""
    return seen is not None and (not seen.is_tensor or seen.array() is not None)


def record_again(trace: "Trace", steps: Sequence[int], capture: str) -> str:
    """The command that records some steps of a run, or all for none, again and more closely."""
    # A trace that was fetched from elsewhere is recorded again into this folder.
    path = trace.path if isinstance(trace.path, Path) else Path(_file_name(trace.path))
    stem = path.with_suffix("") if path.suffix == ".trace" else path
    output = stem.with_name(f"{stem.name}.{capture}.trace")
    options = ["-o", str(output), "--capture", capture]
    if steps:
        options += ["--steps", ",".join(f"{step}:{step + 1}" for step in steps)]
    return shlex.join(["tp-record", *options, "--", trace.header.program, *trace.header.arguments])


def _file_name(place: RemoteLocation) -> str:
    name = place.url.partition("::")[0].partition("?")[0].rstrip("/").rpartition("/")[2]
    return name or "run.trace"
