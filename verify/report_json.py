"""The JSON result of cases, schema version 1; names and meanings stay."""

import json
from typing import Any

from traceparity._version import __version__
from traceparity.differ import report_json
from traceparity.verify import verdict_json
from traceparity.verify.execution import Execution
from traceparity.verify.result import CaseResult, VerifyResult
from traceparity.verify.zoom import Zoomed

SCHEMA_VERSION = 1


def as_json(result: VerifyResult) -> str:
    """The result as JSON text."""
    data = report_json.jsonable(as_dict(result))
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_dict(result: VerifyResult) -> dict[str, Any]:
    """The result as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "traceparity_version": __version__,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "interrupted": result.interrupted,
        "file": str(result.path),
        "cases": [_case(case) for case in result.cases],
    }


def _case(case: CaseResult) -> dict[str, Any]:
    verdict = case.verdict
    return {
        "name": case.name,
        "kind": case.kind,
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "seconds": round(case.seconds, 3),
        "executions": [
            {"role": played.role, **_execution(played.execution)} for played in case.played
        ],
        "comparison": report_json.as_dict(verdict.comparison) if verdict.comparison else None,
        "check": verdict_json.as_dict(verdict.check) if verdict.check else None,
        "recorded_elsewhere": [
            {"name": each.name, "reference": each.reference, "target": each.target}
            for each in verdict.elsewhere
        ],
        "updated": str(case.updated) if case.updated else None,
        "notes": list(verdict.notes),
        "zoom": _zoom(verdict.zoom) if verdict.zoom else None,
    }


def _zoom(zoom: Zoomed) -> dict[str, Any]:
    return {
        "reason": zoom.reason,
        "comparison": report_json.as_dict(zoom.comparison) if zoom.comparison else None,
    }


def _execution(run: Execution) -> dict[str, Any]:
    return {
        "command": list(run.command),
        "status": run.status,
        "seconds": round(run.seconds, 3),
        "problem": run.problem,
        "pid": run.pid,
        "processes": [
            {"host": each.host, "pid": each.pid, "started": each.started} for each in run.processes
        ],
        # Names only: values may be secrets.
        "environment": list(run.environment),
        "trace": str(run.trace),
        "stdout": str(run.stdout),
        "stderr": str(run.stderr),
        "stdout_tail": run.stdout_tail,
        "stderr_tail": run.stderr_tail,
    }
