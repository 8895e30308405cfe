"""The zoom of a case: which of its commands are run again for it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from traceparity.differ.diff import as_start
from traceparity.differ.result import DiffResult, Outcome
from traceparity.recorder.settings import Settings
from traceparity.verify.result import Verdict
from traceparity.verify.stage import Ended, Stage
from traceparity.verify.zoom import Sides, Zoomed, zoom

_COMPARED = {
    "accumulation": ("reference", "target"),
    "compare": ("reference", "target"),
    "repeat": ("command", "command"),
    "resume": ("reference", "resume"),
}
"""The commands whose recordings are compared, by kind of case."""


def zoomed(stage: Stage, verdict: Verdict) -> Verdict:
    """The verdict with a closer look at what it rests on; nothing else of it changes."""
    result, kind = verdict.comparison, stage.case.kind
    open_ended = verdict.outcome in (Outcome.FAIL, Outcome.ABSTAIN)
    if result is None or not open_ended or kind not in _COMPARED:
        return verdict
    roles = _roles(kind, result)
    if "reference" in roles and "reference" not in stage.case.commands:
        seen = Zoomed("the reference is archived, and nothing says how to run it again")
    else:
        try:
            seen = zoom(result, _sides(stage, roles))
        except Ended as end:
            seen = Zoomed(f"it could not be run again: {end.verdict.reason}")
    return replace(verdict, zoom=seen)


def _roles(kind: str, result: DiffResult) -> tuple[str, str]:
    """The commands of the reference and of the target, or of the part of it that matters."""
    if kind == "resume" and result.first is not None and result.first.part == 1:
        return "reference", "save"
    return _COMPARED[kind]


def _sides(stage: Stage, roles: tuple[str, str]) -> Sides:
    case = stage.case
    policy = as_start(case.policy) if case.kind == "repeat" else case.policy
    if roles[1] == "save":
        policy = as_start(policy)
    archived = case.archive.trace if case.archive else None
    return Sides(*_reruns(stage, roles), settings=case.settings, policy=policy, archived=archived)


def _reruns(
    stage: Stage, roles: tuple[str, str]
) -> tuple[Callable[[Settings, str], Path], Callable[[Settings, str], Path]]:
    def rerun(role: str, side: str) -> Callable[[Settings, str], Path]:
        return lambda settings, name: stage.run_again(role, f"{side}-{name}", settings)

    sides = ("reference", "target") if roles[0] == roles[1] else roles
    return rerun(roles[0], sides[0]), rerun(roles[1], sides[1])
