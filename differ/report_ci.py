"""Reports for continuous integration: JUnit XML and GitHub annotations."""

from xml.sax.saxutils import escape, quoteattr

from traceparity.differ.report_text import as_text
from traceparity.differ.result import DiffResult, Outcome


def as_junit(result: DiffResult) -> str:
    """The result as a JUnit file of one test case."""
    name = quoteattr(f"{result.reference.path} = {result.target.path}")
    element = {
        Outcome.FAIL: "failure",
        Outcome.ERROR: "error",
        Outcome.ABSTAIN: "skipped",
    }.get(result.outcome)
    body = ""
    if element:
        message = quoteattr(result.reason)
        body = f"<{element} message={message}>{escape(_printable(as_text(result)))}</{element}>"
    counts = " ".join(
        f'{kind}="{int(element == single)}"'
        for kind, single in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<testsuite name="traceparity" tests="1" {counts}>\n'
        f'  <testcase classname="traceparity.diff" name={name}>{body}</testcase>\n'
        "</testsuite>\n"
    )


def _printable(text: str) -> str:
    return "".join(char for char in text if char in "\n\t" or ord(char) >= 32)


def as_github(result: DiffResult) -> str:
    """The result as a workflow command, placed at the source line where one is known."""
    level = {Outcome.PASS: "notice", Outcome.ABSTAIN: "warning"}.get(result.outcome, "error")
    place = ""
    if result.first and result.first.location:
        file, _, line = result.first.location.rpartition(":")
        place = f" file={_property(file)},line={line}," if file and line.isdecimal() else " "
    else:
        place = " "
    message = _data(result.reason)
    return f"::{level}{place}title=traceparity {result.outcome.value}::{message}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
