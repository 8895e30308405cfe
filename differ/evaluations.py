"""Evaluation activity, which does not decide: where runs differ in it that agree otherwise."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from traceparity.differ.policy import Policy
from traceparity.differ.step_judge import StepJudge
from traceparity.tracefmt.records import Phase

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


def has_evaluations(trace: "Trace") -> bool:
    """Whether a trace tells of any evaluation; answered from its sites alone."""
    sites = (entry.site for entry in trace.sites)
    return any(site.phase is Phase.FORWARD and site.field == "draws" for site in sites)


def judging_evaluations(policy: Policy) -> Policy:
    """The same policy, but evaluation activity decides too."""
    return replace(policy, align=replace(policy.align, evaluation="compare"))


def difference_note(judge: StepJudge, pairs: Iterable[tuple[int, int]]) -> str:
    """What to say of evaluations of runs that satisfy their policy; empty where they agree.

    Args:
        judge: Of steps under `judging_evaluations`.
        pairs: Steps of the reference and of the target that answer each other.
    """
    for number, target_number in pairs:
        steps = judge.reference.steps[number], judge.target.steps[target_number]
        if not any(step.evaluation.any() for step in steps):
            continue
        first = judge.compare(number, target_number, equal_before=False).first
        if first is not None:
            return (
                f"evaluation activity, which does not decide, differs from step {number} on, first "
                f'{first.phase}:{first.component}:{first.field}; evaluation = "compare" under '
                "[align] in a policy file has it decide"
            )
    return ""
