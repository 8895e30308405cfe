"""The JSON result of a check of one run: the shape of a comparison's, as far as it makes sense."""

from typing import Any

from traceparity._version import __version__
from traceparity.differ.check import CheckResult
from traceparity.differ.coverage_json import coverage_data
from traceparity.differ.nonfinite import NonFinite
from traceparity.differ.report_json import SCHEMA_VERSION, observation_data, run_data


def as_dict(result: CheckResult) -> dict[str, Any]:
    """The result as data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "traceparity_version": __version__,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "target": run_data(result.target),
        "policy": result.policy.as_dict(),
        "coverage": coverage_data(result.coverage) if result.coverage else None,
        "violations": [_violation(found) for found in result.violations],
        "violations_total": result.violations_total,
        "not_observed": [
            {"side": each.side, "component": each.component, "reason": each.reason}
            for each in result.not_observed
        ],
        "notes": list(result.notes),
    }


def _violation(found: NonFinite) -> dict[str, Any]:
    return {
        "kind": "nonfinite",
        "rank": found.rank,
        "step": found.step,
        "microbatch": found.microbatch,
        "call": found.call,
        "phase": found.phase,
        "component": found.component,
        "field": found.field,
        "target": observation_data(found.seen),
        "location": found.location,
    }
