"""The noise floor: measured by repetitions, kept in the trace, allowed in declared multiples."""

import pytest

from traceparity.differ.diff import diff_runs
from traceparity.differ.errors import PolicyError
from traceparity.differ.policy import Policy, Rule
from traceparity.differ.policy_file import read_policy
from traceparity.differ.policy_text import policy_text
from traceparity.differ.result import Outcome
from traceparity.tracefmt.reader import open_trace

SITE = "optimizer:head.weight:value"
REFERENCE = 'reference = "TRAIN --noise 1e-7"'
POLICY = f'policy = {{ compare = [{{ site = "{SITE}", tolerance = "noise * %s" }}] }}'
CLOSE = (REFERENCE, "repeat_reference = 3", 'record = { capture = "%s" }')


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["sketch", "values"])
def test_a_target_within_the_measured_noise_passes_and_one_beyond_it_fails(capture, cases):
    lines = (*CLOSE[:2], CLOSE[2] % capture, POLICY % 2000)

    near = cases.one("compare", *lines, 'target = "TRAIN --noise 1e-7"')
    far = cases.one("compare", *lines, 'target = "TRAIN --fault 2"')

    assert near.outcome is Outcome.PASS, near.verdict.reason
    assert far.outcome is Outcome.FAIL, far.verdict.reason
    assert far.verdict.comparison.first.step == 2


def test_the_noise_of_each_site_is_kept_in_the_trace_of_the_reference(cases):
    case = cases.one("compare", *CLOSE[:2], POLICY % 4, 'target = "TRAIN"')

    with open_trace(case.played[0].execution.trace) as trace:
        assert list(trace.noise) == [SITE]
        assert 0 < trace.noise[SITE] < 1e-2
        assert trace.complete
        assert len(trace.steps) == 4
        trace.columns(3)


def test_sites_that_never_differ_stay_exact(cases):
    policy = 'policy = { compare = [{ site = "*", tolerance = "noise * 1000" }] }'
    lines = ('reference = "TRAIN"', "repeat_reference = 2", policy)

    assert cases.one("compare", *lines, 'target = "TRAIN"').outcome is Outcome.PASS
    assert cases.one("compare", *lines, 'target = "TRAIN --fault 1"').outcome is Outcome.FAIL


def test_a_multiple_of_a_noise_that_nobody_measured_abstains(cases):
    case = cases.one("compare", 'reference = "TRAIN"', 'target = "TRAIN"', POLICY % 4)

    assert case.outcome is Outcome.ABSTAIN
    assert "repeat_reference = N" in case.verdict.reason
    trace = case.played[0].execution.trace
    policy = Policy(rules=(Rule(noise=4.0),))
    assert diff_runs(trace, [trace], policy).outcome is Outcome.ABSTAIN


def test_a_policy_declares_a_multiple_of_the_noise(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('[[compare]]\nsite = "loss:*"\ntolerance = "noise * 2.5"\n')
    policy = read_policy(path)

    assert policy.rules == (Rule(site="loss:*", noise=2.5),)
    path.write_text(policy_text(policy))
    assert read_policy(path) == policy


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('tolerance = "loud"', 'must be "noise * FACTOR"'),
        ('tolerance = "noise * -1"', 'must be "noise * FACTOR"'),
        ('tolerance = "noise"\nrel_l2 = 1.0', "does not go with rel_l2"),
    ],
)
def test_a_tolerance_that_means_nothing_is_an_error(line, said, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(f'[[compare]]\nsite = "*"\n{line}\n')

    with pytest.raises(PolicyError, match=r"policy.toml:3: compare\[0\].tolerance: ") as caught:
        read_policy(path)
    assert said in str(caught.value)
