"""Reports of a check of one run for continuous integration."""

from traceparity.differ.check import CheckResult
from traceparity.differ.check_text import as_text
from traceparity.differ.report_ci import github, junit


def as_junit(result: CheckResult) -> str:
    """The result as a JUnit file of one test case."""
    name = result.target.path
    return junit("traceparity.check", name, result.outcome, result.reason, as_text(result))


def as_github(result: CheckResult) -> str:
    """The result as a workflow command, placed at the source line where one is known."""
    location = result.violations[0].location if result.violations else ""
    return github(result.outcome, result.reason, location)
