"""The text report of cases: one line for what passes, and all that is known of what does not."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from traceparity.differ.report_layout import Paint, bullets, headline, painter
from traceparity.differ.report_text import as_text as comparison_text
from traceparity.differ.result import Outcome
from traceparity.verify import verdict_text
from traceparity.verify.execution import Execution
from traceparity.verify.result import CaseResult, VerifyResult
from traceparity.verify.zoom import Zoomed

_INDENT = "    "
_COLOURS = {"PASS": "32;1", "FAIL": "31;1", "ABSTAIN": "33;1", "ERROR": "31;1"}
_SHOWN = 12
"""Lines of stderr that are shown without being asked for all."""


def as_text(result: VerifyResult, *, colour: bool = False, verbose: bool = False) -> str:
    """The report; ``verbose`` leaves nothing out."""
    paint = painter(colour=colour)
    parts = [case_text(case, colour=colour, verbose=verbose) for case in result.cases]
    parts.append("\n".join(headline(result.outcome, result.reason, paint)) + "\n")
    return "\n".join(parts)


def case_text(case: CaseResult, *, colour: bool = False, verbose: bool = False) -> str:
    """The report on one case."""
    paint = painter(colour=colour)
    word = case.outcome.value
    took = f"{case.kind}, {case.seconds:.1f} s"
    lines = [f"{paint(word, _COLOURS[word])}  {paint(case.name, '1')}  ({took})"]
    if case.updated or case.outcome in (Outcome.PASS, Outcome.ERROR) or not _has_report(case):
        lines += bullets([case.verdict.reason])
    lines += bullets(_elsewhere(case))
    lines += bullets(case.verdict.notes)
    if not verbose:
        lines += bullets(_unsaid(case))
    if case.outcome is not Outcome.PASS or case.updated or verbose:
        lines += _report(case, colour=colour, verbose=verbose)
    if case.verdict.zoom is not None:
        lines += _zoom(case.verdict.zoom, colour=colour, verbose=verbose)
    if case.outcome is not Outcome.PASS or verbose:
        lines += _executions(case, paint, verbose=verbose)
    return "\n".join(lines) + "\n"


def _unsaid(case: CaseResult) -> list[str]:
    """That there is more to know of what passed, as what was not compared."""
    comparison = case.verdict.comparison
    if case.outcome is not Outcome.PASS or case.updated or comparison is None:
        return []
    count = len(comparison.notes)
    return [f"{count} note{'s' * (count > 1)} on the comparison: -v shows them"] if count else []


def _has_report(case: CaseResult) -> bool:
    return case.verdict.comparison is not None or case.verdict.check is not None


def _elsewhere(case: CaseResult) -> list[str]:
    return [
        f"the reference was recorded elsewhere: {each.name} {each.reference or 'absent'} there,"
        f" {each.target or 'absent'} here"
        for each in case.verdict.elsewhere
    ]


def _report(case: CaseResult, *, colour: bool, verbose: bool) -> Iterator[str]:
    verdict = case.verdict
    if verdict.comparison is not None:
        text = comparison_text(verdict.comparison, colour=colour, verbose=verbose)
    elif verdict.check is not None:
        text = verdict_text.as_text(verdict.check, colour=colour, verbose=verbose)
    else:
        return
    yield ""
    yield from textwrap.indent(text.rstrip(), _INDENT).splitlines()


def _zoom(zoom: Zoomed, *, colour: bool, verbose: bool) -> Iterator[str]:
    yield ""
    yield from textwrap.wrap(f"Zoom: {zoom.reason}", 80, initial_indent=_INDENT,
                             subsequent_indent=f"{_INDENT}  ", break_on_hyphens=False)  # fmt: skip
    if zoom.comparison is not None and (zoom.comparison.first is not None or verbose):
        yield ""
        text = comparison_text(zoom.comparison, colour=colour, verbose=verbose)
        yield from textwrap.indent(text.rstrip(), _INDENT * 2).splitlines()


def _executions(case: CaseResult, paint: Paint, *, verbose: bool) -> Iterator[str]:
    if not case.played:
        return
    yield ""
    width = max(len(played.role) for played in case.played)
    for played in case.played:
        run = played.execution
        role = paint(played.role.ljust(width), "1")
        yield f"{_INDENT}{role}  {run.seconds:6.1f} s  {shortened(run.trace)}"
        if not run.ok or verbose:
            yield f"{_INDENT}  {shortened(run.stderr)}"
            yield from _tail(run, verbose=verbose)


def _tail(run: Execution, *, verbose: bool) -> Iterator[str]:
    lines = run.stderr_tail.splitlines()
    for line in lines if verbose else lines[-_SHOWN:]:
        yield f"{_INDENT}  | {line}"


def shortened(path: Path) -> str:
    """The path as it is shorter to type: from the current folder where it lies in it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
