"""What `tp-show` says, as JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from traceparity.differ.observation import Observation
from traceparity.differ.report_json import jsonable
from traceparity.differ.show import (
    Request,
    Shown,
    find_step,
    observation_count,
    observations,
    phase_counts,
    sites_of,
)
from traceparity.tracefmt.reader import Trace
from traceparity.tracefmt.records import Damage, Flag, Kind, Phase, StepEntry
from traceparity.tracefmt.verification import Verdict

SCHEMA_VERSION = 1


def report(traces: Mapping[int, Trace], request: Request) -> str:
    """What was asked for, of each rank."""
    return _document({rank: _told(trace, request) for rank, trace in traces.items()})


def check_report(verdicts: Mapping[int, Verdict]) -> str:
    """How sound the files of a run are."""
    return _document(
        {rank: _verdict(found) for rank, found in verdicts.items()},
        sound=all(found.sound for found in verdicts.values()),
    )


def _told(trace: Trace, request: Request) -> dict[str, Any]:
    if request.sites:
        return _sites(trace, request.globs)
    if request.steps:
        return _steps(trace, [find_step(trace, number) for number in request.steps], request.globs)
    return _steps(trace, trace.steps, request.globs) if request.globs else _overview(trace)


def _document(ranks: Mapping[int, Mapping[str, Any]], **facts: Any) -> str:
    """The document: facts of the run, then what is said of each rank."""
    document = {
        "schema_version": SCHEMA_VERSION,
        **facts,
        "ranks": [{"rank": rank, **said} for rank, said in ranks.items()],
    }
    return json.dumps(jsonable(document), indent=2, allow_nan=False)


def _overview(trace: Trace) -> dict[str, Any]:
    """The header, and what the index says of each step."""
    return {
        "path": str(trace.path),
        "format_version": ".".join(map(str, trace.header.format_version)),
        "complete": trace.complete,
        "incomplete_reason": trace.incomplete_reason,
        "content_digest": trace.content_digest,
        "header": {
            name: value
            for name, value in asdict(trace.header).items()
            if name not in ("format_version", "rank")
        }
        | {"rank": trace.header.rank},
        "observations": observation_count(trace),
        "sites": len(trace.sites),
        "not_observed": [asdict(note) for note in trace.not_observed],
        "damage": [_damage(each) for each in trace.damage],
        "lost_steps": list(trace.lost),
        "unfinished_step": None if trace.unfinished is None else _step(trace.unfinished),
        "steps": [_step(step) for step in trace.steps],
    }


def _sites(trace: Trace, globs: Sequence[str]) -> dict[str, Any]:
    """The matching sites."""
    return {
        "path": str(trace.path),
        "sites": [
            {
                "phase": entry.site.phase.label,
                "component": entry.site.component,
                "field": entry.site.field,
                "location": entry.location,
            }
            for entry in sites_of(trace, globs)
        ],
    }


def _steps(trace: Trace, entries: Iterable[StepEntry], globs: Sequence[str]) -> dict[str, Any]:
    """Steps with their observations at the matching sites."""
    return {
        "path": str(trace.path),
        "steps": [
            _step(step)
            | {"observations": [_shown(each) for each in observations(trace, step.number, globs)]}
            for step in entries
        ],
    }


def _verdict(found: Verdict) -> dict[str, Any]:
    """How sound a file is."""
    return {
        "path": str(found.path),
        "sound": found.sound,
        "complete": found.complete,
        "reason": found.reason,
        "size": found.size,
        "records": found.records,
        "steps": found.steps,
        "lost_steps": list(found.lost),
        "unfinished_step": found.unfinished,
        "damage": [_damage(each) for each in found.damage],
    }


def _damage(damage: Damage) -> dict[str, Any]:
    return {
        "offset": damage.offset,
        "length": damage.end - damage.offset,
        "reason": damage.reason,
        "steps": list(damage.steps),
    }


def _step(step: StepEntry) -> dict[str, Any]:
    return {
        "number": step.number,
        "tail": step.tail,
        "micro_batches": step.micro_batches,
        "counts": phase_counts(step),
        "phase_digests": {
            phase.label: step.phase_digests[phase].hex()
            for phase in Phase
            if any(step.phase_digests[phase])
        },
        "chunks": [{"offset": offset, "length": length} for offset, length in step.chunks],
    }


def _shown(shown: Shown) -> dict[str, Any]:
    return {
        "phase": shown.site.phase.label,
        "component": shown.site.component,
        "field": shown.site.field,
        "location": shown.location,
        "microbatch": shown.microbatch,
        "call": shown.call,
        "kind": shown.seen.kind.name.lower(),
        "flags": [flag.name.lower() for flag in Flag if flag in shown.seen.flags and flag.name],
        **_value(shown.seen),
    }


def _value(seen: Observation) -> dict[str, Any]:
    if not seen.is_tensor:
        name = "sample_ids" if seen.kind == Kind.SAMPLE_IDS else "value"
        return {name: seen.plain, "digest": seen.digest.hex()}
    told: dict[str, Any] = {
        "dtype": seen.dtype,
        "shape": list(seen.shape),
        "device": seen.device,
        "digest": seen.digest.hex(),
        "min": seen.minimum,
        "max": seen.maximum,
        "l2": seen.norm,
        "nonfinite": seen.nonfinite,
    }
    array = seen.array()
    if array is not None and array.dtype.kind != "c":
        plain = array if array.dtype.kind in "iub" else array.astype(float)
        told["value"] = plain.tolist()
    return told
