"""The text report of a case."""

import pytest

from traceparity.differ.result import DiffResult, Outcome, RunSummary
from traceparity.verify.report_text import case_text
from traceparity.verify.result import CaseResult, Verdict


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ((), ""),
        (("not compared: 3 sites",), "1 note on the comparison: -v shows them"),
        (("not compared: 3 sites", "no update"), "2 notes on the comparison: -v shows them"),
    ],
)
def test_a_case_that_passed_tells_that_there_is_more_to_know(notes, said):
    """What was not compared is no line in the list of cases, and no secret either."""
    runs = RunSummary("a.trace"), RunSummary("b.trace")
    comparison = DiffResult(Outcome.PASS, "all equal", *runs, notes=notes)
    case = CaseResult("mine", "compare", Verdict(Outcome.PASS, "all equal", comparison))

    short, long = case_text(case), case_text(case, verbose=True)

    assert ("-v shows" in short, said in short) == (bool(notes), True)
    assert "-v shows" not in long
    assert all(note in long for note in notes)
