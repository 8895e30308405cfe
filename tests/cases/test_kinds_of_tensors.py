"""Every kind of tensor, recorded for real: judged by limits where they mean something."""

import forked
import kinds_of_tensors as kinds
import pytest

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy, Rule
from traceparity.differ.result import Outcome
from traceparity.tracefmt.reader import open_trace


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    found = {}
    for capture in ("values", "sketch"):
        for variant in kinds.MOVED:
            found[capture, variant] = folder / f"{capture}-{variant}.trace"
            out = found[capture, variant]
            forked.record(kinds.train, [variant], out, folder, capture=capture)
    return found


@pytest.fixture
def judge(traces):
    def judge(kind: str, variant: str, capture: str = "values", **limits: float | bool) -> Outcome:
        """Compare what one module hands on, and nothing else."""
        rules = Rule("*", ignore=True), Rule(f"forward:kinds.a_{kind}:*", **limits)
        paths = traces[capture, "same"], traces[capture, variant]
        return diff_runs(paths[0], [paths[1]], Policy(rules=rules)).outcome

    return judge


def test_no_kind_of_tensor_is_lost(traces):
    with open_trace(traces["values", "same"]) as trace:
        seen = {entry.site.component for entry in trace.sites if "output" in entry.site.field}

        assert trace.complete
        assert not trace.not_observed
    assert {f"kinds.a_{name}" for name in kinds.KINDS} - seen == {"kinds.a_none"}


@pytest.mark.parametrize("kind", [*kinds.INEXACT, *kinds.WHOLE, *kinds.BY_BITS])
def test_bits_are_equal_or_not_whatever_the_kind(judge, kind):
    assert judge(kind, "same") is Outcome.PASS
    assert judge(kind, "far") is Outcome.FAIL


@pytest.mark.parametrize("kind", kinds.INEXACT)
@pytest.mark.parametrize(
    "limit", [{"rtol": 0.3}, {"rtol": 0.3, "symmetric": True}, {"rel_l2": 0.3}]
)
def test_inexact_numbers_are_judged_by_limits(judge, kind, limit):
    assert judge(kind, "near", **limit) is Outcome.PASS
    assert judge(kind, "far", **limit) is Outcome.FAIL


@pytest.mark.parametrize("kind", sorted(set(kinds.INEXACT) - {"single", "infinite"}))
def test_inexact_numbers_are_judged_by_their_sketches(judge, kind):
    assert judge(kind, "near", "sketch", rel_l2=0.3) is Outcome.PASS
    assert judge(kind, "far", "sketch", rel_l2=0.2) is Outcome.FAIL


@pytest.mark.parametrize("kind", kinds.WHOLE)
def test_whole_numbers_are_exact_under_any_limit(judge, kind):
    assert judge(kind, "far", rtol=10.0) is Outcome.FAIL


@pytest.mark.parametrize("kind", kinds.ALIKE)
def test_what_is_empty_is_equal(judge, kind):
    assert judge(kind, "far") is not Outcome.FAIL


def test_a_nested_tensor_that_differs_cannot_be_judged_by_a_limit(traces):
    rules = Rule("*", ignore=True), Rule("forward:kinds.a_nested:*", rtol=0.3)
    paths = traces["values", "same"], traces["values", "near"]

    result = diff_runs(paths[0], [paths[1]], Policy(rules=rules))

    assert result.outcome is Outcome.ABSTAIN
    assert "by its bits alone" in result.reason
