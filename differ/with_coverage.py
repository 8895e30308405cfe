"""The verdict on two runs with that on the target's samples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from traceparity.differ import coverage_text
from traceparity.differ.coverage import judge_coverage
from traceparity.differ.coverage_report import CoverageReport
from traceparity.differ.policy import Policy
from traceparity.differ.result import NOTHING_COMPARED, DiffResult, Outcome

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

Run = Mapping[int, "Trace"]


def judge_target(
    policy: Policy, reference: Run, segments: Sequence[Run], offsets: Sequence[Mapping[int, int]]
) -> CoverageReport | None:
    """Judge the target's samples; None where the policy declares no coverage.

    Args:
        policy: The declared relation.
        reference: Tells the expected samples where neither policy nor dataset do.
        segments: The parts of the target.
        offsets: For each segment the reference step of its step 0, by rank, where that was found.

    Raises:
        TraceError: A trace cannot be used.
    """
    if policy.coverage is None:
        return None
    resumed = policy.align.kind == "resume"
    return judge_coverage(
        segments,
        policy.coverage,
        # The epochs of a resumed run have other numbers than those of the reference.
        reference=None if resumed or len(segments) > 1 else reference,
        resumed=resumed,
        cuts=[_cut(offsets[at], offsets[at + 1]) for at in range(len(offsets) - 1)],
    )


def _cut(offsets: Mapping[int, int], following: Mapping[int, int]) -> dict[int, int | None]:
    """From which step on the next segment did the steps of this one again."""
    return {rank: following[rank] - offset for rank, offset in offsets.items() if rank in following}


def with_coverage(result: DiffResult, report: CoverageReport | None) -> DiffResult:
    """The result, with what the target's samples come to."""
    if report is None:
        return result
    outcome, reason = _verdict(result, report)
    return replace(result, outcome=outcome, reason=reason, coverage=report)


def _verdict(result: DiffResult, report: CoverageReport) -> tuple[Outcome, str]:
    said = coverage_text.reason(report)
    if report.outcome is Outcome.FAIL:
        reason = f"{result.reason}; {said}" if result.outcome is Outcome.FAIL else said
        return Outcome.FAIL, reason
    if result.reason == NOTHING_COMPARED and result.compared.ignored:
        # The policy leaves out all values: the samples are the whole relation.
        return report.outcome, said
    if report.outcome is Outcome.PASS:
        return result.outcome, f"{result.reason}; {said}"
    if result.outcome is Outcome.PASS:
        return Outcome.ABSTAIN, said
    return result.outcome, f"{result.reason}; {said}"
