"""The text report of a check of one run."""

from traceparity.differ.check import CheckResult
from traceparity.differ.describe import describe
from traceparity.differ.nonfinite import NonFinite
from traceparity.differ.report_layout import Paint, bullets, section
from traceparity.differ.report_text import coverage_section, not_observed_section

_SHOWN = 6


def sections(result: CheckResult, paint: Paint, *, verbose: bool = False) -> list[list[str]]:
    """The report without its headline; ``verbose`` leaves nothing out."""
    coverage = result.coverage
    return [
        _violations(result, paint, verbose=verbose),
        coverage_section(coverage, paint, verbose=verbose) if coverage else [],
        section("Notes", result.notes, paint),
        not_observed_section(result.not_observed, paint, verbose=verbose),
    ]


def _violations(result: CheckResult, paint: Paint, *, verbose: bool) -> list[str]:
    if not result.violations:
        return []
    most = len(result.violations) if verbose else _SHOWN
    texts = [_sentence(found) for found in result.violations[:most]]
    if result.violations_total > most:
        hint = "" if verbose else " (-v shows more)"
        texts.append(f"{result.violations_total - most:,} more places{hint}")
    return [paint("Non-finite values", "1"), *bullets(texts, paint.width)]


def _sentence(found: NonFinite) -> str:
    rank = f" of rank {found.rank}" if found.rank else ""
    batch = f", micro-batch {found.microbatch}" if found.microbatch else ""
    name = f"{found.phase}:{found.component}:{found.field}"
    where = f", {found.location}" if found.location else ""
    return f"step {found.step}{rank}{batch}: {name}, {describe(found.seen)}{where}"
