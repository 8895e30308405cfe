"""The JSON result of a check: that of the differ's part, with the findings beside it."""

import json
from typing import Any

from traceparity.differ.check_json import as_dict as check_dict
from traceparity.differ.report_json import jsonable
from traceparity.invariants.causes import Cause
from traceparity.invariants.finding import Finding
from traceparity.invariants.laws.result import LawsResult
from traceparity.invariants.result import InvariantsResult
from traceparity.verify.run_verdict import RunVerdict

MOST_FINDINGS = 100


def as_json(verdict: RunVerdict) -> str:
    """The verdict as JSON text."""
    data = jsonable(as_dict(verdict))
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_dict(verdict: RunVerdict) -> dict[str, Any]:
    """The verdict as data."""
    data = check_dict(verdict.check)
    data["outcome"], data["reason"] = verdict.outcome.value, verdict.reason
    learned = verdict.invariants
    if learned is not None:
        data["violations"] += [finding_data(each) for each in learned.findings[:MOST_FINDINGS]]
        data["violations_total"] += len(learned.findings)
        data["invariants"] = _invariants(learned)
    laws = verdict.laws
    if laws is not None:
        data["violations"] += [finding_data(each, "law") for each in laws.findings[:MOST_FINDINGS]]
        data["violations_total"] += len(laws.findings)
        data["laws"] = _laws(laws)
    advice = verdict.advice.causes if verdict.advice is not None else ()
    data["advice"] = [_cause(each, "law") for each in advice]
    return data


def finding_data(found: Finding, kind: str = "invariant") -> dict[str, Any]:
    """A finding as an entry of ``violations``."""
    return {
        "kind": kind,
        "relation": found.relation,
        "invariant": found.invariant,
        "rank": found.rank,
        "step": found.step,
        "microbatch": found.microbatch,
        "phase": found.phase.label,
        "component": found.component,
        "field": found.field,
        "others": list(found.others),
        "others_total": len(found.others) + found.more,
        "expected": found.expected,
        "seen": found.seen,
        "sentence": found.sentence,
        "hint": found.hint,
        "location": found.location,
    }


def _invariants(learned: InvariantsResult) -> dict[str, Any]:
    return {
        "file": learned.file,
        "total": len(learned.coverage),
        "exercised": learned.exercised,
        "causes": [_cause(each) for each in learned.causes],
        "findings_total": len(learned.findings),
        "accepted": dict(learned.accepted),
        "not_exercised": [
            {
                "id": each.invariant.id,
                "text_description": each.invariant.text,
                "reason": each.reason,
                "unseen": each.unseen,
            }
            for each in learned.coverage
            if not each.events
        ],
    }


def _laws(laws: LawsResult) -> dict[str, Any]:
    return {
        "declared": [law.id for law in laws.laws],
        "causes": [_cause(each, "law") for each in laws.causes],
        "findings_total": len(laws.findings),
        "not_judged": [{"id": each.law.id, "reason": each.reason} for each in laws.not_judged],
    }


def _cause(cause: Cause, kind: str = "invariant") -> dict[str, Any]:
    return {
        "first": finding_data(cause.first, kind),
        "follow": len(cause.follow),
        "last_step": cause.last_step,
        "invariants": sorted({each.invariant for each in (cause.first, *cause.follow)}),
    }
