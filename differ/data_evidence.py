"""Batches: which samples a difference comes from, and which worker made it."""

from dataclasses import replace
from typing import Any

from traceparity.differ.candidates import Candidate
from traceparity.differ.divergence import same_samples
from traceparity.differ.result import Divergence, Evidence
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import StepView
from traceparity.tracefmt.records import Phase

_SHOWN_IDS = 16


def with_samples(pair: StepPair, candidate: Candidate, divergence: Divergence) -> Divergence:
    """The divergence, told apart by whether the sample IDs of its batch differ too."""
    if candidate.block.phase != Phase.DATA:
        return divergence
    ids = _both(pair, candidate, divergence.component, "sample_ids")
    evidence = []
    if ids[0] is not None and ids[1] is not None:
        if ids[0] != ids[1]:
            detail = f"sample IDs {shown_ids(ids[0])} against {shown_ids(ids[1])}"
            evidence.append(Evidence("sample_ids", False, detail))
            kind = "order" if same_samples(ids[0], ids[1]) else "sample_id"
            divergence = replace(divergence, kind=kind)
        else:
            detail = f"sample IDs equal: {shown_ids(ids[0])}"
            evidence.append(Evidence("sample_ids", True, detail))
            evidence += _samples(
                _both(pair, candidate, divergence.component, "sample_digests"), ids[0]
            )
    worker = _both(pair, candidate, divergence.component, "worker")
    if any(number is not None for number in worker):
        evidence.append(Evidence("worker", worker[0] == worker[1], _worker_detail(worker)))
    return replace(divergence, evidence=tuple(evidence))


def _samples(digests: tuple[Any, Any], ids: list[Any]) -> list[Evidence]:
    """Which samples have other contents under the same ID."""
    left, right = digests
    if not isinstance(left, list) or not isinstance(right, list) or len(left) != len(right):
        return []
    if len(left) != len(ids):
        return []
    changed = [name for name, a, b in zip(ids, left, right, strict=True) if a != b]
    if not changed:
        return [Evidence("samples", True, "the contents of every sample are equal")]
    detail = f"the contents differ for samples {shown_ids(changed)}"
    return [Evidence("samples", False, detail)]


def _worker_detail(worker: tuple[Any, Any]) -> str:
    if worker[0] == worker[1]:
        return f"the batch was made by worker {worker[0]}"
    return f"the batch was made by worker {worker[0]} against {worker[1]}"


def _both(pair: StepPair, candidate: Candidate, component: str, field: str) -> tuple[Any, Any]:
    number = pair.sites.number(Phase.DATA, component, field)
    return (
        _near(pair.reference, candidate, candidate.reference_row, number),
        _near(pair.target, candidate, candidate.target_row, number),
    )


def _near(view: StepView, candidate: Candidate, row: int | None, number: int | None) -> Any:
    """The plain value of a site that belongs to the batch in which a row is."""
    rows = [
        found
        for found in view.rows(Phase.DATA, number)
        if view.columns.microbatch[found] == candidate.block.microbatch
    ]
    same_call = [found for found in rows if view.columns.call[found] == candidate.call]
    for found in same_call or rows[:1]:
        return view.observation(found).plain
    return None


def shown_ids(ids: list[Any]) -> str:
    """A list of sample IDs, cut where it gets long."""
    shown = ", ".join(str(name) for name in ids[:_SHOWN_IDS])
    return f"[{shown}, ... {len(ids)} in all]" if len(ids) > _SHOWN_IDS else f"[{shown}]"
