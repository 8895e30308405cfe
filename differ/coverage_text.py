"""Coverage in words: a sentence for each violation, and the section of a text report."""

from traceparity.differ.coverage_report import CoverageReport, ScopeReport
from traceparity.differ.coverage_scope import Sighting, Violation
from traceparity.differ.policy import Coverage
from traceparity.differ.result import Outcome

_SHOWN = 6
_SHOWN_SCOPES = 4


def reason(report: CoverageReport) -> str:
    """What the samples come to, in one sentence."""
    declared = report.declared
    if report.outcome is Outcome.FAIL:
        first = violation_sentence(report.violations[0], declared)
        more = report.violations_total
        return f"coverage {declared.policy} is violated: {first}" + (
            f" ({more:,} violations in all)" if more > 1 else ""
        )
    if report.outcome is Outcome.ABSTAIN:
        return f"coverage {declared.policy} cannot be judged: {report.doubts[0]}"
    return f"{report.observations:,} samples in {_extent(report)} satisfy {declared.policy}"


def _extent(report: CoverageReport) -> str:
    loaders = len({scope.loader for scope in report.scopes})
    of_loaders = "" if loaders == 1 else f" of {loaders} loaders"
    if report.declared.scope == "trace":
        return f"the run{of_loaders}"
    epochs = len({scope.epoch for scope in report.scopes})
    return f"{epochs} {'epoch' if epochs == 1 else 'epochs'}{of_loaders}"


def violation_sentence(found: Violation, declared: Coverage) -> str:
    """A violation, where it is and what it is measured by."""
    where = "the run" if found.epoch is None else f"epoch {found.epoch}"
    if found.loader != "loader[0]":
        where += f" of {found.loader}"
    did = "trained on" if declared.count == "trained" else "fetched"
    name = f"sample {found.sample_id!r}"
    if found.kind == "padding":
        surplus = "1 surplus sample" if found.surplus == 1 else f"{found.surplus} surplus samples"
        return f"{where} has {surplus} and {declared.padding} are declared"
    if found.seen is None:
        why = f": {found.why}" if found.why else ""
        return f"no rank {did} {name} in {where}{why}"
    seen = found.seen
    sentence = f"rank {seen.rank} {did} {name} at {_place(seen)} of {where}{_details(seen)}"
    if found.before is None:
        return f"{sentence}, which is not expected"
    if found.before.rank == seen.rank:
        return f"{sentence}, and before at {_place(found.before)}{_details(found.before)}"
    place = f"{_place(found.before)}{_details(found.before)}"
    return f"{sentence}, as rank {found.before.rank} did at {place}"


def _place(seen: Sighting) -> str:
    return f"position {seen.position}"


def _details(seen: Sighting) -> str:
    worker = "" if seen.worker is None else f", worker {seen.worker}"
    return f" (step {seen.step}{worker})"


def rows(report: CoverageReport) -> list[tuple[str, str]]:
    """What was judged, as rows of label and text."""
    declared = report.declared
    count = "trained on" if declared.count == "trained" else "fetched"
    of = "the sampler's IDs" if declared.id == "sampler" else f"the IDs in {declared.id}"
    scope = "each epoch" if declared.scope == "epoch" else "the whole run"
    found = [("rule", f"{declared.policy} over {of}, {count}, in {scope}")]
    expected = dict.fromkeys(scope.expected for scope in report.scopes if scope.expected)
    found += [("expected", told) for told in list(expected)[:2]]
    wrong = [scope for scope in report.scopes if scope.violations or scope.doubts]
    found += [(_scope_name(each), _scope_counts(each)) for each in wrong[:_SHOWN_SCOPES]]
    if len(wrong) > _SHOWN_SCOPES:
        found.append(("", f"and {len(wrong) - _SHOWN_SCOPES} more with violations or doubts"))
    if fine := len(report.scopes) - len(wrong):
        unit = " epochs" if declared.scope == "epoch" and len(report.scopes) > 1 else ""
        found.append(("satisfied", f"{fine} of {len(report.scopes)}{unit}"))
    return found


def _scope_name(scope: ScopeReport) -> str:
    name = "the run" if scope.epoch is None else f"epoch {scope.epoch}"
    return name if scope.loader == "loader[0]" else f"{name} {scope.loader}"


def _scope_counts(scope: ScopeReport) -> str:
    counts = scope.counts
    parts = [f"{counts.observations:,} seen, {counts.unique:,} different"]
    for number, word in (
        (counts.duplicates, "repeated on the same rank"),
        (counts.overlaps, "repeated on another rank"),
        (counts.missing, "not seen"),
        (counts.unexpected, "not expected"),
    ):
        if number:
            parts.append(f"{number:,} {word}")
    return ", ".join(parts)


def bullets(report: CoverageReport, *, verbose: bool) -> list[str]:
    """The violations and doubts, the first ones unless ``verbose``."""
    sentences = [violation_sentence(found, report.declared) for found in report.violations]
    most = len(sentences) if verbose else _SHOWN
    shown = sentences[:most]
    if len(sentences) > most:
        more, listed = report.violations_total - most, len(sentences) - most
        which = "them" if more == listed else f"{listed:,} of them"
        shown.append(f"{more:,} more violations (-v shows {which})")
    elif report.violations_total > len(sentences):
        shown.append(f"{report.violations_total - len(sentences):,} more violations")
    doubts = report.doubts if verbose else report.doubts[:_SHOWN]
    return [*shown, *(f"not judged in full: {doubt}" for doubt in doubts)]
