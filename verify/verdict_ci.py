"""Reports of a check for continuous integration."""

from traceparity.differ.report_ci import github, junit
from traceparity.differ.report_markdown import summary
from traceparity.verify.run_verdict import RunVerdict
from traceparity.verify.verdict_text import as_text


def as_junit(verdict: RunVerdict) -> str:
    """The verdict as a JUnit file of one test case."""
    name = verdict.check.target.path
    return junit("traceparity.check", name, verdict.outcome, verdict.reason, as_text(verdict))


def as_markdown(verdict: RunVerdict) -> str:
    """A summary in Markdown, with the text report to unfold."""
    return summary(verdict.check.target.path, verdict.outcome, verdict.reason, as_text(verdict))


def as_github(verdict: RunVerdict) -> str:
    """The verdict as a workflow command, placed at the source line where one is known."""
    return github(verdict.outcome, verdict.reason, location(verdict))


def location(verdict: RunVerdict) -> str:
    """The source line of the first thing that is wrong; empty where none is known."""
    learned, violations = verdict.invariants, verdict.check.violations
    if verdict.laws is not None and verdict.laws.causes:
        return verdict.laws.causes[0].first.location
    if learned is not None and learned.causes:
        return learned.causes[0].first.location
    return violations[0].location if violations else ""
