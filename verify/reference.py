"""The reference of a case: run once or several times, or a trace that was recorded before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from traceparity.differ.diff import as_start, diff_runs
from traceparity.differ.environment import environment_differences
from traceparity.differ.noise import measured_noise
from traceparity.differ.policy import Policy
from traceparity.differ.result import Difference, Outcome
from traceparity.tracefmt.location import Location
from traceparity.tracefmt.noise import keep_noise
from traceparity.tracefmt.reader import open_run
from traceparity.verify.case import Archive, Case
from traceparity.verify.result import Verdict
from traceparity.verify.stage import Ended, Stage

_CHANGE_NUMBERS = ("torch", "cuda", "numpy", "machine", "cpu", "devices")
"""What, beside the code, decides which numbers come out."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the target is compared with.

    Attributes:
        case: Whose reference it is.
        trace: Its trace.
        archive: Where it comes from; None where it has just been run.
    """

    case: Case
    trace: Location
    archive: Archive | None = None

    def compared(self, targets: Sequence[Path], *, prefix: bool = False) -> Verdict:
        """The verdict on a target, in one part or several."""
        elsewhere = made_elsewhere(self.trace, targets[-1]) if self.archive else ()
        policy, repeat = self.case.policy, None
        if self.archive:
            repeat = self.archive.repeat
            policy = (self.archive.elsewhere or policy) if elsewhere else policy
        result = diff_runs(self.trace, targets, policy, repeat, prefix=prefix)
        reason = result.reason
        if elsewhere and result.outcome is not Outcome.PASS:
            reason = f"the reference was recorded elsewhere ({named(elsewhere)}); {reason}"
        return Verdict(result.outcome, reason, result, elsewhere=elsewhere)


def reference_of(stage: Stage) -> Reference:
    """The reference, which agrees with itself as far as that was asked for.

    Raises:
        Ended: It cannot be had, or its repetitions disagree.
    """
    case = stage.case
    if case.archive:
        trace = case.archive.trace
        if isinstance(trace, Path) and not trace.exists():
            reason = f"{trace}: no such trace; tp-verify --update records it"
            raise Ended(Verdict(Outcome.ERROR, reason))
        for kept in (trace, case.archive.repeat):
            if kept is not None:
                _is_whole(kept)
        return Reference(case, trace, case.archive)
    recorded = stage.run("reference")
    repeats = [stage.run("reference", number) for number in range(2, case.repetitions + 1)]
    if case.measured:
        _keep_noise(recorded, measured_noise(recorded, repeats))
    for repeat in repeats:
        _agrees(recorded, repeat, case.policy)
    return Reference(case, recorded)


def _is_whole(archived: Location) -> None:
    """See, before anything runs, that an archived trace can be judged against to its end."""
    for trace in open_run(archived).values():
        with trace:
            if not trace.complete:
                reason = f"{trace.path} is not whole: {trace.incomplete_reason}; record it again"
                raise Ended(Verdict(Outcome.ERROR, reason))


def _keep_noise(trace: Path, noise: Mapping[int, Mapping[str, float]]) -> None:
    """Keep in the trace of each rank how far equal runs differ."""
    for rank, distances in noise.items():
        file = trace / f"rank{rank}.trace" if trace.is_dir() else trace
        try:
            keep_noise(file, distances)
        except OSError as error:
            reason = f"{file}: its noise cannot be kept: {error.strerror or error}"
            raise Ended(Verdict(Outcome.ERROR, reason)) from error


def _agrees(trace: Path, other: Path, policy: Policy) -> None:
    result = diff_runs(trace, [other], as_start(policy))
    if result.outcome is Outcome.PASS:
        return
    said = "disagrees with itself" if result.outcome is Outcome.FAIL else "cannot be judged"
    reason = f"the reference {said}: {result.reason}"
    raise Ended(Verdict(Outcome.ABSTAIN, reason, replace(result, outcome=Outcome.ABSTAIN)))


def named(differences: Sequence[Difference]) -> str:
    """Differences of the environment in a line."""
    return ", ".join(
        f"{each.name} {each.reference or 'absent'} against {each.target or 'absent'}"
        for each in differences
    )


def made_elsewhere(reference: Location, target: Location) -> tuple[Difference, ...]:
    """How the places of two recordings differ in what changes numbers.

    Raises:
        TraceError: A trace cannot be read.
    """
    headers = []
    for path in (reference, target):
        traces = open_run(path)
        headers.append(next(iter(traces.values())).header)
        for trace in traces.values():
            trace.close()
    return tuple(
        found for found in environment_differences(*headers) if found.name in _CHANGE_NUMBERS
    )
