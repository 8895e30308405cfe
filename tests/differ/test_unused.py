"""What a policy declares of nothing is said, and never a failure."""

import pytest
from synthetic import Run

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.result import Outcome

LEAD = "the policy declares what no trace has: "


def notes(result) -> list[str]:
    return [note.removeprefix(LEAD) for note in result.notes if note.startswith(LEAD)]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(rules=(Rule("gradent:*", ignore=True),)), ["site gradent:*"]),
        (Policy(rules=(Rule("forward:boby.*", rtol=1.0),)), ["site forward:boby.*"]),
        (Policy(Align(rename=(("layers.{i}", "body.{i}"),))), ["rename layers.{i}"]),
        (
            Policy(Align(rename=(("old", "new"),)), (Rule("x", rtol=1.0), Rule("*", rtol=1.0))),
            ["site x, rename old"],
        ),
        (Policy(Align(rename=(("head", "head"),)), (Rule("loss:*", rtol=1.0),)), []),
        (Policy(), []),
    ],
)
def test_a_declaration_about_nothing_is_one_note(bench, policy, said):
    result = bench.changed(lambda steps: None, policy)

    assert result.outcome is Outcome.PASS
    assert notes(result) == said


def test_a_rule_about_what_one_part_of_the_target_has_is_about_something(bench):
    """The optimizer's state is listed where the second part begins, and only there."""
    parts = [bench.write(Run().steps(3)), bench.write(Run().steps(6, 3))]
    rules = Rule("state:optimizer[0]:exp_avg*", rtol=1.0), Rule("nothing", rtol=1.0)

    result = diff_runs(bench.write(Run().steps(6)), parts, Policy(rules=rules))

    assert notes(result) == ["site nothing"]
