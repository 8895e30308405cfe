"""Summaries in Markdown, as GitHub shows them on the page of a workflow's run."""

from traceparity.differ.result import Outcome

_SIGNS = {Outcome.PASS: "✅", Outcome.FAIL: "❌", Outcome.ERROR: "💥", Outcome.ABSTAIN: "⚠️"}


def summary(title: str, outcome: Outcome, reason: str, report: str) -> str:
    """A heading with the outcome, what it rests on, and the text report to unfold."""
    return f"### {sign(outcome)} {plain(title)}\n\n{plain(reason)}\n\n{unfolding('Report', report)}"


def sign(outcome: Outcome) -> str:
    """The outcome with a sign that is found at a glance."""
    return f"{_SIGNS[outcome]} {outcome.value}"


def unfolding(title: str, report: str) -> str:
    """A text that is shown as it is once it is asked for."""
    # A fence that is longer than any in the text cannot be ended by it.
    fence = "```"
    while fence in report:
        fence += "`"
    return (
        f"<details><summary>{plain(title)}</summary>\n\n"
        f"{fence}text\n{report.rstrip()}\n{fence}\n\n</details>\n"
    )


def plain(text: str) -> str:
    """A text of one line in which nothing is taken for markup."""
    for character in "\\`*_[]<>|#":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
