"""Reports for continuous integration: JUnit XML and GitHub annotations."""

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from traceparity.differ.report_markdown import summary
from traceparity.differ.report_text import as_text
from traceparity.differ.result import DiffResult, Outcome


def as_junit(result: DiffResult) -> str:
    """The result as a JUnit file of one test case."""
    name = f"{result.reference.path} = {result.target.path}"
    return junit("traceparity.diff", name, result.outcome, result.reason, as_text(result))


def junit(suite: str, name: str, outcome: Outcome, reason: str, report: str) -> str:
    """A JUnit file of one test case."""
    return junit_suite("traceparity", [(outcome, junit_case(suite, name, outcome, reason, report))])


_ELEMENTS = {Outcome.FAIL: "failure", Outcome.ERROR: "error", Outcome.ABSTAIN: "skipped"}


def junit_case(
    suite: str, name: str, outcome: Outcome, reason: str, report: str, seconds: float | None = None
) -> str:
    """A test case of a JUnit file."""
    body = ""
    if element := _ELEMENTS.get(outcome):
        message = quoteattr(_printable(reason))
        body = f"<{element} message={message}>{escape(_printable(report))}</{element}>"
    took = "" if seconds is None else f' time="{seconds:.3f}"'
    return (
        f"  <testcase classname={quoteattr(_printable(suite))} name={quoteattr(_printable(name))}"
        f"{took}>{body}</testcase>\n"
    )


def junit_suite(name: str, cases: Sequence[tuple[Outcome, str]]) -> str:
    """A JUnit file of test cases."""
    outcomes = [outcome for outcome, _ in cases]
    counts = " ".join(
        f'{kind}="{outcomes.count(outcome)}"'
        for kind, outcome in (
            ("failures", Outcome.FAIL), ("errors", Outcome.ERROR), ("skipped", Outcome.ABSTAIN)
        )
    )  # fmt: skip
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<testsuite name={quoteattr(_printable(name))} tests="{len(cases)}" {counts}>\n'
        + "".join(text for _, text in cases)
        + "</testsuite>\n"
    )


def _printable(text: str) -> str:
    return "".join(char for char in text if char in "\n\t" or ord(char) >= 32)


def as_markdown(result: DiffResult) -> str:
    """A summary in Markdown, with the text report to unfold."""
    title = f"{result.reference.path} = {result.target.path}"
    return summary(title, result.outcome, result.reason, as_text(result))


def as_github(result: DiffResult) -> str:
    """The result as a workflow command, placed at the source line where one is known."""
    location = result.first.location if result.first else ""
    return github(result.outcome, result.reason, location)


def github(outcome: Outcome, reason: str, location: str, name: str = "traceparity") -> str:
    """A workflow command, placed at the source line where one is known."""
    level = {Outcome.PASS: "notice", Outcome.ABSTAIN: "warning"}.get(outcome, "error")
    file, _, line = location.rpartition(":")
    place = f" file={_property(file)},line={line}," if file and line.isdecimal() else " "
    return f"::{level}{place}title={_property(name)} {outcome.value}::{_data(reason)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
