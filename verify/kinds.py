"""The kinds of cases: which commands run, and what is asked of their recordings."""

from collections.abc import Callable
from dataclasses import replace

from traceparity.differ.diff import as_start, diff_runs
from traceparity.differ.result import Outcome
from traceparity.invariants.file import read_invariants
from traceparity.invariants.laws.choice import choose
from traceparity.verify.reference import reference_of
from traceparity.verify.result import Verdict
from traceparity.verify.run_verdict import judge_run
from traceparity.verify.stage import Stage
from traceparity.verify.unchanged import unchanged


def resume(stage: Stage) -> Verdict:
    """A run that saves and one that goes on from there are, together, the uninterrupted run."""
    reference = reference_of(stage)
    save = stage.run("save")
    stage.expect_files("resume", "save")
    verdict = reference.compared([save, stage.run("resume")], prefix=True)
    if not stage.mentions("resume", "save"):
        note = "resume does not name {save}: what it loaded may have been left by another run"
        verdict = replace(verdict, notes=(*verdict.notes, note))
    found = verdict.comparison
    if verdict.outcome is Outcome.PASS and found and not found.alignment.step_offset:
        reason = "resume began at step 0: it trained everything again instead of going on"
        return replace(verdict, outcome=Outcome.FAIL, reason=reason)
    return verdict


def compare(stage: Stage) -> Verdict:
    """Two commands, or a command and an archived trace, satisfy the policy."""
    return reference_of(stage).compared([stage.run("target")])


def repeat(stage: Stage) -> Verdict:
    """All runs of one command are equal under the policy."""
    policy = as_start(stage.case.policy)
    first, *others = [stage.run("command", n + 1) for n in range(stage.case.repetitions)]
    result = None
    for other in others:
        result = diff_runs(first, [other], policy)
        if result.outcome is not Outcome.PASS:
            return Verdict(result.outcome, result.reason, result)
    reason = f"{stage.case.repetitions} runs agree: {result.reason if result else ''}"
    return Verdict(Outcome.PASS, reason, result)


def check(stage: Stage) -> Verdict:
    """One run, judged by itself and by what good runs keep."""
    case = stage.case
    # Read first: a run is long, and a file that cannot be read is known at once.
    learned = read_invariants(case.invariants) if case.invariants else ()
    laws = choose(policy={"all": "off", **dict(case.policy.laws)}, advice=False)
    found = judge_run(
        [stage.run("command")], case.policy, finite=case.finite, invariants=learned,
        file=case.invariants, laws=laws,
    )  # fmt: skip
    return Verdict(found.outcome, found.reason, check=found)


JUDGES: dict[str, Callable[[Stage], Verdict]] = {
    "resume": resume,
    "accumulation": compare,
    "compare": compare,
    "repeat": repeat,
    "coverage": check,
    "check": check,
    "unchanged": unchanged,
}
"""What judges each kind of case."""
