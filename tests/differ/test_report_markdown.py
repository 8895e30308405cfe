"""Summaries in Markdown: nothing in a report is taken for markup."""

from traceparity.differ.report_markdown import plain, summary, unfolding
from traceparity.differ.result import Outcome


def test_names_with_markup_stay_names():
    assert plain("a|b [0] *c* <d>\ne") == "a\\|b \\[0\\] \\*c\\* \\<d\\> e"


def test_a_report_cannot_end_its_own_fence():
    text = unfolding("Report", "before\n```\nafter")

    assert "````text\nbefore\n```\nafter\n````\n" in text


def test_the_heading_tells_the_outcome():
    text = summary("a.trace", Outcome.ABSTAIN, "nothing was compared", "ABSTAIN  ...")

    assert text.startswith("### ⚠️ ABSTAIN a.trace\n\nnothing was compared\n")
