"""The JSON result, schema version 1; other tools parse it, so names and meanings stay."""

import json
import math
from typing import Any

from traceparity._version import __version__
from traceparity.differ.coverage_json import coverage_data
from traceparity.differ.metrics import Metrics, widened
from traceparity.differ.observation import Observation
from traceparity.differ.result import DiffResult, Divergence, RunSummary
from traceparity.tracefmt.records import Kind

SCHEMA_VERSION = 1
_MOST_ELEMENTS = 16
_MOST_IDS = 1000


def as_json(result: DiffResult) -> str:
    """The result as JSON text."""
    return json.dumps(as_dict(result), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_dict(result: DiffResult) -> dict[str, Any]:
    """The result as plain data that every JSON parser accepts."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "traceparity_version": __version__,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "reference": run_data(result.reference),
        "target": run_data(result.target),
        "alignment": {
            "kind": result.alignment.kind,
            "step_offset": result.alignment.step_offset,
            "how": result.alignment.how,
        },
        "policy": result.policy.as_dict(),
        "compared": {name: getattr(result.compared, name) for name in result.compared.__slots__},
        "first_divergence": _divergence(result.first) if result.first else None,
        "divergences": [_divergence(divergence) for divergence in result.divergences],
        "coverage": coverage_data(result.coverage) if result.coverage else None,
        "environment_differences": [
            {"name": each.name, "reference": each.reference, "target": each.target}
            for each in result.environment
        ],
        "not_observed": [
            {"side": each.side, "component": each.component, "reason": each.reason}
            for each in result.not_observed
        ],
        "notes": list(result.notes),
    }
    plain: dict[str, Any] = jsonable(data)
    return plain


def run_data(run: RunSummary) -> dict[str, Any]:
    """A run as plain data."""
    return {
        "path": run.path,
        "ranks": run.ranks,
        "steps": run.steps,
        "complete": run.complete,
        "content_digest": run.content_digest,
    }


def _divergence(found: Divergence) -> dict[str, Any]:
    # Told of a target in several parts alone: the part whose steps `target_step` counts.
    part = {"part": found.part} if found.part else {}
    return part | {
        "rank": found.rank,
        "step": found.step,
        "target_step": found.target_step,
        "microbatch": found.microbatch,
        "call": found.call,
        "phase": found.phase,
        "component": found.component,
        "field": found.field,
        "kind": found.kind,
        "reference": observation_data(found.reference),
        "target": observation_data(found.target),
        "metrics": _metrics(found.metrics),
        "location": found.location,
        "evidence": [
            {"what": each.what, "equal": each.equal, "detail": each.detail}
            for each in found.evidence
        ],
    }


def observation_data(seen: Observation | None) -> dict[str, Any] | None:
    """An observation as plain data."""
    if seen is None:
        return None
    if not seen.is_tensor:
        plain = seen.plain
        if seen.kind == Kind.SAMPLE_IDS and isinstance(plain, list):
            return {"sample_ids": plain[:_MOST_IDS], "count": len(plain)}
        return {"value": plain}
    data: dict[str, Any] = {
        "dtype": seen.dtype,
        "shape": list(seen.shape),
        "device": seen.device,
        "digest": seen.digest.hex(),
        "min": seen.minimum,
        "max": seen.maximum,
        "l2": seen.norm,
        "nonfinite": seen.nonfinite,
    }
    if seen.place is not None:
        offset, whole = seen.place
        data["shard"] = {"offset": list(offset), "whole": list(whole), "layout": seen.layout}
    array = seen.array()
    if array is not None and array.size <= _MOST_ELEMENTS and array.dtype.kind != "c":
        plain = array if array.dtype.kind in "iub" else widened(array)
        data["value"] = plain.tolist()
    return data


def _metrics(metrics: Metrics) -> dict[str, Any]:
    return {
        "max_abs": metrics.max_abs,
        "max_rel": metrics.max_rel,
        "rel_l2": metrics.rel_l2,
        "ulp": metrics.ulp,
        "cosine": metrics.cosine,
        "unequal": metrics.unequal,
        "elements": metrics.elements,
        "first_index": list(metrics.first_index) if metrics.first_index is not None else None,
        "nans": list(metrics.nans) if metrics.nans is not None else None,
        "infinities": list(metrics.infinities) if metrics.infinities is not None else None,
        "estimated": metrics.estimated,
    }


def jsonable(value: Any) -> Any:
    """Plain data without what JSON cannot say: NaN becomes null, infinities become text."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, bytes):
        return value.hex()
    return value
