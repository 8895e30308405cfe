"""The text report: a tired person finds the first divergence in ten seconds, in 80 columns."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from traceparity.differ.describe import describe, describe_more, describe_size
from traceparity.differ.report_layout import (
    WIDTH,
    Paint,
    bullets,
    headline,
    painter,
    row,
    section,
)
from traceparity.differ.result import DiffResult, Divergence, Evidence, NotSeen, Outcome

if TYPE_CHECKING:
    from traceparity.differ.coverage_report import CoverageReport

_PHASE_WORDS = {
    "state": "in the state that the step starts from",
    "data": "in the batch",
    "forward": "in the forward pass",
    "loss": "in the loss",
    "backward": "in the backward pass",
    "gradient": "in the gradients that the optimizer receives",
    "optimizer": "in the optimizer's update",
    "scheduler": "in the scheduler's step",
}
_MOST_ENVIRONMENT = 8
_MOST_NOT_OBSERVED = 4


def as_text(
    result: DiffResult, *, colour: bool = False, verbose: bool = False, width: int = WIDTH
) -> str:
    """The report, in so many columns; ``verbose`` leaves nothing out."""
    paint = painter(colour=colour, width=width)
    sections = [
        _headline(result, paint),
        _place(result.first, paint) if result.first else [],
        _still_equal(result, paint),
        _unequal_evidence(result, paint),
        coverage_section(result.coverage, paint, verbose=verbose) if result.coverage else [],
        _growth(result, paint),
        section("Notes", result.notes, paint),
        _environment(result, paint, verbose),
        not_observed_section(result.not_observed, paint, verbose=verbose),
        _next(result, paint),
    ]
    return "\n".join("\n".join(section) + "\n" for section in sections if section)


def _headline(result: DiffResult, paint: Paint) -> list[str]:
    sentence = f"the runs part at {_moment(result.first)}" if result.first else result.reason
    return headline(result.outcome, sentence, paint)


def _moment(first: Divergence) -> str:
    step = f"step {first.step}"
    if first.part or first.target_step != first.step:
        part = f" of part {first.part}" if first.part else ""
        step += f" (target step {first.target_step}{part})"
    if first.rank:
        step += f" of rank {first.rank}"
    if first.microbatch:
        step += f", micro-batch {first.microbatch}"
    if first.field == "step" and first.reference is None and first.target is None:
        return f"{step}: only one run has that step"
    return f"{step}, {_PHASE_WORDS[first.phase]}"


def _place(first: Divergence, paint: Paint) -> list[str]:
    if first.field == "step" and first.reference is None and first.target is None:
        lacking = "target" if first.kind == "missing" else "reference"
        return row("difference", f"the {lacking} ends before step {first.step}", paint)
    rows = [("where", f"{first.component or first.root_class or '(root)'}  {first.field}")]
    if first.reference_name:
        rows.append(("", f"(in the reference {first.reference_name})"))
    if first.call:
        rows.append(("", f"call {first.call + 1} of that site"))
    if first.reference is not None or first.target is not None:
        rows.append(("reference", describe(first.reference)))
        rows.append(("target", describe(first.target)))
    rows += [
        ("difference", _difference(first)),
    ]
    if more := describe_more(first.metrics):
        rows.append(("", more))
    if first.location:
        rows.append(("source", first.location))
        if first.target_location not in ("", first.location):
            rows.append(("", f"{first.target_location} (target)"))
    return [line for label, text in rows for line in row(label, text, paint)]


def _difference(first: Divergence) -> str:
    kind, size = first.kind.replace("_", " "), describe_size(first)
    return f"{kind}: {size}" if size else kind


def _still_equal(result: DiffResult, paint: Paint) -> list[str]:
    if result.first is None:
        return []
    first = result.first
    texts = [each.detail for each in _shown(first.evidence, equal=True)]
    begin = result.alignment.step_offset or 0
    if first.step > begin:
        steps = f"step {begin}" if first.step - begin == 1 else f"steps {begin} to {first.step - 1}"
        texts.insert(0, f"everything compared in {steps}")
    return [paint("Still equal", "1"), *bullets(texts, paint.width)] if texts else []


def _unequal_evidence(result: DiffResult, paint: Paint) -> list[str]:
    if result.first is None:
        return []
    evidence = result.first.evidence
    texts = [each.detail for each in evidence if each.equal is None]
    texts += [each.detail for each in _shown(evidence, equal=False)]
    return [paint("Evidence", "1"), *bullets(texts, paint.width)] if texts else []


def _shown(evidence: Sequence[Evidence], *, equal: bool) -> Iterator[Evidence]:
    return (each for each in evidence if each.equal is equal)


def _growth(result: DiffResult, paint: Paint) -> list[str]:
    points = [point for point in result.growth if point.loss or point.parameters is not None]
    if len(points) < 2:
        return []
    chosen = sorted({*range(min(3, len(points))), len(points) // 2, len(points) - 1})
    lines = [paint("How it grows", "1")]
    for index in chosen:
        point = points[index]
        parts = [f"  step {point.step:<6}"]
        if point.loss:
            parts.append(f"loss {point.loss[0]:.7g} against {point.loss[1]:.7g}".ljust(38))
        if point.parameters is not None:
            parts.append(f"parameters {point.parameters:.1e} apart")
        lines.append(" ".join(parts).rstrip())
    return lines


def coverage_section(report: "CoverageReport", paint: Paint, *, verbose: bool = False) -> list[str]:
    """What the samples come to."""
    # Late, as it takes long to import and is seldom asked for.
    from traceparity.differ import coverage_text

    lines = [paint("Coverage", "1")]
    for label, text in coverage_text.rows(report):
        lines += row(label, text, paint)
    return lines + bullets(coverage_text.bullets(report, verbose=verbose), paint.width)


def _environment(result: DiffResult, paint: Paint, verbose: bool) -> list[str]:
    if not result.environment:
        return []
    most = len(result.environment) if verbose else _MOST_ENVIRONMENT
    texts = [
        f"{each.name}: {each.reference if each.reference is not None else 'absent'} against "
        f"{each.target if each.target is not None else 'absent'}"
        for each in result.environment[:most]
    ]
    if len(result.environment) > most:
        texts.append(f"{len(result.environment) - most} more (-v shows them)")
    return [paint("Environment differs", "1"), *bullets(texts, paint.width)]


def not_observed_section(seen: Sequence[NotSeen], paint: Paint, *, verbose: bool) -> list[str]:
    """What the recorder could not see."""
    most = len(seen) if verbose else _MOST_NOT_OBSERVED
    texts = [f"{each.component or 'the run'} ({each.side}): {each.reason}" for each in seen[:most]]
    if len(seen) > most:
        texts.append(f"{len(seen) - most} more (-v shows them)")
    return section("Not observed", texts, paint)


def _next(result: DiffResult, paint: Paint) -> list[str]:
    if not result.next_commands or result.outcome is not Outcome.FAIL:
        return []
    # Commands are not wrapped: they are there to be copied.
    return [paint("Next", "1"), *(f"  {command}" for command in result.next_commands)]
