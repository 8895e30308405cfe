"""Reports for continuous integration: JUnit XML and GitHub annotations."""

from xml.sax.saxutils import escape, quoteattr

from traceparity.differ.report_text import as_text
from traceparity.differ.result import DiffResult, Outcome


def as_junit(result: DiffResult) -> str:
    """The result as a JUnit file of one test case."""
    name = f"{result.reference.path} = {result.target.path}"
    return junit("traceparity.diff", name, result.outcome, result.reason, as_text(result))


def junit(suite: str, name: str, outcome: Outcome, reason: str, report: str) -> str:
    """A JUnit file of one test case."""
    element = {
        Outcome.FAIL: "failure",
        Outcome.ERROR: "error",
        Outcome.ABSTAIN: "skipped",
    }.get(outcome)
    body = ""
    if element:
        message = quoteattr(_printable(reason))
        body = f"<{element} message={message}>{escape(_printable(report))}</{element}>"
    counts = " ".join(
        f'{kind}="{int(element == single)}"'
        for kind, single in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<testsuite name="traceparity" tests="1" {counts}>\n'
        f'  <testcase classname="{suite}" name={quoteattr(_printable(name))}>{body}</testcase>\n'
        "</testsuite>\n"
    )


def _printable(text: str) -> str:
    return "".join(char for char in text if char in "\n\t" or ord(char) >= 32)


def as_github(result: DiffResult) -> str:
    """The result as a workflow command, placed at the source line where one is known."""
    location = result.first.location if result.first else ""
    return github(result.outcome, result.reason, location)


def github(outcome: Outcome, reason: str, location: str) -> str:
    """A workflow command, placed at the source line where one is known."""
    level = {Outcome.PASS: "notice", Outcome.ABSTAIN: "warning"}.get(outcome, "error")
    file, _, line = location.rpartition(":")
    place = f" file={_property(file)},line={line}," if file and line.isdecimal() else " "
    return f"::{level}{place}title=traceparity {outcome.value}::{_data(reason)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
