"""The `coverage` block of JSON results."""

from dataclasses import asdict
from typing import Any

from traceparity.differ import coverage_text
from traceparity.differ.coverage_report import CoverageReport, ScopeReport
from traceparity.differ.coverage_scope import Sighting, Violation

_MOST_SCOPES = 100
_MOST_VIOLATIONS = 1000


def coverage_data(report: CoverageReport) -> dict[str, Any]:
    """The report as plain data."""
    declared = report.declared
    return {
        "policy": declared.policy,
        "outcome": report.outcome.value,
        "reason": coverage_text.reason(report),
        "violations": [_violation(found) for found in report.violations[:_MOST_VIOLATIONS]],
        "violations_total": report.violations_total,
        "observations": report.observations,
        "doubts": list(report.doubts),
        "scopes": [_scope(scope) for scope in report.scopes[:_MOST_SCOPES]],
        "scopes_total": len(report.scopes),
    }


def _violation(found: Violation) -> dict[str, Any]:
    seen = found.seen
    return {
        "kind": found.kind,
        "sample_id": found.sample_id,
        "rank": seen.rank if seen else None,
        "epoch": found.epoch,
        "position": seen.position if seen else None,
        "step": seen.step if seen else None,
        "worker": seen.worker if seen else None,
        "loader": found.loader,
        "first_seen": _sighting(found.before) if found.before else None,
        "surplus": found.surplus,
        "why": found.why or None,
    }


def _sighting(seen: Sighting) -> dict[str, Any]:
    return asdict(seen)


def _scope(scope: ScopeReport) -> dict[str, Any]:
    return {
        "loader": scope.loader,
        "epoch": scope.epoch,
        "expected_samples": scope.expected or None,
        **asdict(scope.counts),
        "violations": scope.violations,
        "doubts": list(scope.doubts),
    }
