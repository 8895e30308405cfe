"""Comparing two runs under a policy: all ranks, all segments, one outcome."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from traceparity.differ.capture import common_capture
from traceparity.differ.environment import environment_differences
from traceparity.differ.next_commands import next_commands, record_again
from traceparity.differ.parts import Parts, in_part
from traceparity.differ.policy import NOT_MEASURED, Policy
from traceparity.differ.rank_diff import RankReport
from traceparity.differ.rank_relation import conflicts_of, lacking_ranks, relate
from traceparity.differ.rank_task import RankTask
from traceparity.differ.result import (
    MICRO_BATCHES,
    NOTHING_COMPARED,
    Alignment,
    Compared,
    DiffResult,
    Divergence,
    NotSeen,
    Outcome,
    RunSummary,
)
from traceparity.differ.samples_together import compare_samples
from traceparity.differ.with_coverage import judge_target, with_coverage
from traceparity.differ.workers import HERE, Workers
from traceparity.tracefmt.location import Location

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

Run = Mapping[int, "Trace"]
_RESULTS = ("gradient", "optimizer")
"""Phases that stand for everything inside of what was not observed."""


@dataclass(slots=True)
class _Findings:
    """What the ranks and segments came to, put together."""

    compared: Compared = field(default_factory=Compared)
    divergences: list[Divergence] = field(default_factory=list)
    abstain: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reports: list[RankReport] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    parts: dict[int, Parts] = field(default_factory=dict)

    def add(self, rank: int, report: RankReport, part: int, *, many: bool) -> None:
        where = f"rank {rank}: " if many else ""
        where += f"part {part}: " if part else ""
        ranks = max(self.compared.ranks, len({*range(rank + 1)}) if many else 1)
        self.compared.add(report.compared)
        self.compared.ranks = ranks
        found = in_part(report, part)
        self.divergences = _earliest([*self.divergences, *found])
        self.abstain += [where + reason for reason in report.abstain]
        self.notes += [where + note for note in report.notes]
        # Of a thousand ranks only the first divergence of each step is shown.
        self.reports.append(replace(report, divergences=_earliest(found)[:1]))
        if report.alignment:
            self.offsets[rank] = report.alignment.offset


def diff_runs(
    reference: Location,
    targets: Sequence[Location],
    policy: Policy,
    repeat: Location | None = None,
    *,
    prefix: bool = False,
    workers: Workers = HERE,
) -> DiffResult:
    """Compare a target run, in one segment or several, with a reference run.

    Args:
        reference: Trace or folder of traces.
        targets: The segments of the target in order; each goes on where the one before stopped.
        policy: The declared relation.
        repeat: A second reference run; where both references disagree nothing can be judged.
        prefix: Whether the policy's resume is that of the second segment, while the first one
            begins where the reference does.
        workers: Where the ranks of a run of many are compared.

    Raises:
        TraceError: A trace cannot be used.
        WorkerError: The same in another process, or there is no such process.
    """
    with contextlib.ExitStack() as stack:
        run = _opened(reference, stack)
        segments = [_opened(target, stack) for target in targets]
        findings = _Findings()
        _look_for_all_ranks(findings, "reference", reference, run, policy)
        for target, segment in zip(targets, segments, strict=True):
            _look_for_all_ranks(findings, "target", target, segment, policy)
        offsets = []
        for number, segment in enumerate(segments):
            declared = _declared(policy, number, prefix=prefix)
            findings.offsets = {}
            _compare(findings, run, segment, declared, (number, len(segments)), workers)
            offsets.append(findings.offsets)
        _judge_parts(findings, run)
        findings.notes += _unused(findings.reports)
        paths = str(reference), " ".join(str(target) for target in targets)
        result = _result(findings, run, segments, paths, policy)
        if prefix:
            result = replace(result, alignment=_seam(findings, policy))
        coverage = judge_target(policy, run, segments, offsets)
    if repeat is not None:
        result = _with_repeat(
            result, diff_runs(reference, [repeat], as_start(policy), workers=workers), repeat
        )
    return with_coverage(result, coverage)


def _opened(path: Location, stack: contextlib.ExitStack) -> Run:
    from traceparity.tracefmt.reader import open_run

    run = open_run(path)
    for trace in run.values():
        stack.enter_context(trace)
    return run


def _look_for_all_ranks(
    findings: _Findings, name: str, path: Location, run: Run, policy: Policy
) -> None:
    """Where a folder lacks ranks nothing is known of them; a single file was chosen by the user."""
    lacking = lacking_ranks(name, run)
    if not lacking or policy.align.ranks == "sharded":
        return
    if [trace.path for trace in run.values()] == [path]:
        findings.notes.append(lacking)
    else:
        findings.abstain.append(f"{lacking}; complete the folder, or name the file of one rank")


def error_result(
    reason: str, reference: Location, targets: Sequence[Location], policy: Policy
) -> DiffResult:
    """The result where a trace or policy cannot be read."""
    return DiffResult(
        outcome=Outcome.ERROR,
        reason=reason,
        reference=RunSummary(str(reference)),
        target=RunSummary(" ".join(str(target) for target in targets)),
        policy=policy,
    )


def _declared(policy: Policy, number: int, *, prefix: bool) -> Policy:
    """The relation of one segment: each after the first resumes the one before it."""
    align = policy.align
    if prefix and number == 0:
        return replace(policy, align=replace(align, kind="start", step_offset=None))
    if number == int(prefix) or align.kind == "accumulation":
        return policy
    return replace(policy, align=replace(align, kind="resume", step_offset=None))


def as_start(policy: Policy) -> Policy:
    """The relation of two equal runs that the policy of unequal ones implies."""
    align = replace(policy.align, kind="start", step_offset=None, rename=())
    return replace(policy, align=align, coverage=None)


def _compare(
    findings: _Findings,
    reference: Run,
    target: Run,
    policy: Policy,
    place: tuple[int, int],
    workers: Workers,
) -> None:
    """Compare all ranks of one segment, of which ``place`` tells number and count."""
    number, count = place
    relation = relate(reference, target, policy)
    findings.abstain += relation.lacking
    findings.notes += relation.notes
    pairs = relation.pairs
    tasks, recordings = [], []
    if policy.needs_noise and any(ours.noise is None for _, ours, _ in pairs):
        findings.abstain.append(NOT_MEASURED)
        return
    for rank, ours, theirs in pairs:
        recorded = common_capture(relation.policy, ours.header.capture, theirs.header.capture)
        ends = findings.parts.setdefault(rank, Parts(count)).ends
        last = number == count - 1
        tasks.append(RankTask(rank, ours, theirs, recorded.policy, last, ends, number > 0))
        recordings.append(recorded)
    for task, recorded, report in zip(tasks, recordings, workers.reports(tasks), strict=True):
        findings.parts[task.rank].take(report, task.target)
        report.abstain += conflicts_of(task.reference, task.target)
        report.abstain += recorded.not_recorded
        if recorded.choice_differs and report.compared.unmatched:
            report.abstain.append(
                "the traces were recorded with different --include, --exclude or --operators"
            )
        findings.add(task.rank, report, number + 1 if count > 1 else 0, many=len(pairs) > 1)
    if policy.align.ranks == "sharded":
        # What is sharded was compared with the first rank, for all of them.
        seen = set[str]().union(*(report.phases for report in findings.reports))
        for report in findings.reports:
            report.phases |= seen
    if relation.samples_together and findings.offsets:
        report = _samples_of_all_ranks(findings, reference, target, policy)
        findings.add(min(target), report, number + 1 if count > 1 else 0, many=False)


def _samples_of_all_ranks(
    findings: _Findings, reference: Run, target: Run, policy: Policy
) -> RankReport:
    captures = [run[min(run)].header.capture for run in (reference, target)]
    of_data = replace(policy, align=replace(policy.align, phases=("data",)))
    recorded = common_capture(of_data, *captures)
    if recorded.not_recorded:
        return RankReport(abstain=list(recorded.not_recorded))
    return compare_samples(reference, target, next(iter(findings.offsets.values())))


def _judge_parts(findings: _Findings, reference: Run) -> None:
    """Whether the parts of the target leave nothing out; where each begins."""
    for rank, parts in findings.parts.items():
        if gap := parts.gap(reference.get(rank) or next(iter(reference.values()))):
            findings.abstain.append(gap)
        findings.notes += parts.notes()


def _unused(reports: Sequence[RankReport]) -> list[str]:
    """A note of declarations that are about nothing in any trace: perhaps a slip of the pen."""
    unused = [
        each
        for each in (reports[0].unused if reports else [])
        if all(each in report.unused for report in reports)
    ]
    return [f"the policy declares what no trace has: {', '.join(unused)}"] if unused else []


def _result(
    findings: _Findings,
    reference: Run,
    segments: Sequence[Run],
    paths: tuple[str, str],
    policy: Policy,
) -> DiffResult:
    divergences = findings.divergences
    first = divergences[0] if divergences else None
    ours = next(iter(reference.values()))
    part = first.part - 1 if first and first.part else -1
    theirs = next(iter(segments[part].values()))
    outcome, reason = _outcome(findings, first, ours, theirs)
    worst = next((each for each in findings.reports if first in each.divergences), None)
    return DiffResult(
        outcome=outcome,
        reason=reason,
        reference=_summary(paths[0], [reference]),
        target=_summary(paths[1], segments),
        policy=policy,
        alignment=_alignment(findings, policy),
        compared=findings.compared,
        first=first,
        divergences=tuple(divergences),
        environment=environment_differences(ours.header, theirs.header),
        not_observed=_not_observed(reference, segments),
        notes=(*findings.notes, *_unread(findings, [reference, *segments])),
        growth=tuple(worst.growth) if worst else (),
        next_commands=next_commands(first, ours, theirs) if first else (),
        undecided_step=min(
            (step for report in findings.reports for step, _ in report.undecided), default=None
        ),
    )


def _earliest(divergences: Sequence[Divergence]) -> list[Divergence]:
    """The first divergence of each step, of the first 100 such steps."""
    by_step: dict[int, Divergence] = {}
    for found in sorted(divergences, key=lambda each: (each.step, each.order, each.rank)):
        by_step.setdefault(found.step, found)
    return list(by_step.values())[:100]


def _outcome(
    findings: _Findings, first: Divergence | None, reference: "Trace", target: "Trace"
) -> tuple[Outcome, str]:
    if first is not None:
        detail = f": {first.evidence[0].detail}" if first.field == MICRO_BATCHES else ""
        return Outcome.FAIL, f"the runs part at {describe_place(first)}{detail}"
    equal = f"{findings.compared.observations:,} observations in {findings.compared.steps:,} steps"
    if findings.compared.observations == 0 and not findings.abstain:
        return Outcome.ABSTAIN, NOTHING_COMPARED
    if blind := _blind_phases(findings, reference, target):
        findings.abstain.append(blind)
    undecided = [found for report in findings.reports for found in report.undecided]
    if undecided:
        step, site = undecided[0]
        findings.abstain.append(
            f"{len(undecided)} differences cannot be judged by what was recorded, first {site} in "
            f"step {step}; {_remedy(reference, target, step)}"
        )
    if findings.abstain:
        if findings.compared.observations == 0:
            return Outcome.ABSTAIN, findings.abstain[0]
        return Outcome.ABSTAIN, f"{findings.abstain[0]}; {equal} before satisfy the policy"
    return Outcome.PASS, f"{equal} satisfy the policy"


def _remedy(reference: "Trace", target: "Trace", step: int) -> str:
    """What helps where differences could not be judged."""
    if all(trace.header.capture.get("capture") == "values" for trace in (reference, target)):
        return (
            "such a tensor is compared by its bits alone, as a nested or a very large one is: "
            "declare no limit for it, or ignore it"
        )
    again = record_again(reference, [step], "values")
    return f"record both runs again with values, e.g. {again}"


def _blind_phases(findings: _Findings, reference: "Trace", target: "Trace") -> str:
    """Why results are missing where something was not observed; empty where they were compared."""
    notes = [*reference.not_observed, *target.not_observed]
    for report in findings.reports:
        lacking = [phase for phase in _RESULTS if phase in report.declared - report.phases]
        if notes and lacking:
            return f"no {' and no '.join(lacking)} was compared, and {notes[0].reason}"
    return ""


def describe_place(divergence: Divergence) -> str:
    """The place of a divergence in one line."""
    step = f"step {divergence.step}"
    if divergence.part or divergence.target_step != divergence.step:
        part = f" of part {divergence.part}" if divergence.part else ""
        step += f" (target step {divergence.target_step}{part})"
    name = f"{divergence.phase}:{divergence.component}:{divergence.field}"
    return f"{step}, {name} ({divergence.kind})"


def _summary(path: str, segments: Sequence[Run]) -> RunSummary:
    traces = [trace for segment in segments for trace in segment.values()]
    digests = [trace.content_digest for trace in traces]
    return RunSummary(
        path=path,
        ranks=len(segments[0]),
        steps=sum(max(len(trace.steps) for trace in segment.values()) for segment in segments),
        complete=all(trace.complete for trace in traces),
        content_digest=" ".join(digests),
    )


def _alignment(findings: _Findings, policy: Policy) -> Alignment:
    aligned = [report.alignment for report in findings.reports if report.alignment]
    if not aligned:
        return Alignment(policy.align.kind, policy.align.step_offset, "declared")
    return Alignment(policy.align.kind, aligned[0].offset, aligned[0].how)


def _seam(findings: _Findings, policy: Policy) -> Alignment:
    """Where the second segment was found to go on."""
    begins = next((parts.begins for parts in findings.parts.values()), [])
    if len(begins) < 2:
        return Alignment(policy.align.kind, policy.align.step_offset, "declared")
    return Alignment(policy.align.kind, *begins[1])


def _not_observed(reference: Run, segments: Sequence[Run]) -> tuple[NotSeen, ...]:
    seen: dict[NotSeen, None] = {}
    for side, runs in (("reference", [reference]), ("target", segments)):
        for run in runs:
            for trace in run.values():
                for note in trace.not_observed:
                    seen[NotSeen(side, note.component, note.reason)] = None
    return tuple(seen)


def _unread(findings: _Findings, runs: Sequence[Run]) -> Iterator[str]:
    """That the bytes of equal steps were not looked at, where fetching them would cost much."""
    remote = any(trace.is_remote for run in runs for trace in run.values())
    if remote and findings.compared.skipped_equal:
        yield (
            "equal steps of remote traces were recognised by the index alone; "
            "tp-show --check reads all of a trace"
        )


def _with_repeat(result: DiffResult, repeated: DiffResult, repeat: Location) -> DiffResult:
    """Two reference runs that disagree leave nothing to judge the target by."""
    if repeated.outcome is Outcome.PASS:
        return result
    if repeated.first is not None:
        reason = f"the reference disagrees with its repetition {repeat}: {repeated.reason}"
    else:
        reason = f"the repetition {repeat} cannot be judged: {repeated.reason}"
    return replace(
        result,
        outcome=Outcome.ABSTAIN,
        reason=reason,
        first=None,
        divergences=(),
        growth=(),
        next_commands=(),
    )
