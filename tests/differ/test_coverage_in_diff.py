"""Coverage in a comparison: judged on the target, beside the first divergence."""

from dataclasses import replace

import numpy as np
from synthetic import Run, Step

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Coverage, Policy, Rule
from traceparity.differ.report_json import as_dict
from traceparity.differ.report_text import as_text
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Flag, Kind

PASS, FAIL, ABSTAIN = Outcome.PASS, Outcome.FAIL, Outcome.ABSTAIN
EXACTLY = Coverage("exactly_once", expected="range(0, 20)", scope="trace")
IDS = "data:loader[0]:sample_ids"


def repeat_sample(steps: list[Step]) -> None:
    """Step 3 has a sample of step 0 again."""
    steps[3].change(IDS, [0, 13, 14, 15])


def test_a_covered_target_passes_and_says_so(bench):
    result = bench.changed(lambda steps: None, Policy(coverage=EXACTLY))

    assert result.outcome is PASS
    assert "20 samples in the run satisfy exactly_once" in result.reason
    assert as_dict(result)["coverage"]["violations_total"] == 0


def test_coverage_alone_fails_without_a_first_divergence(bench):
    """The order of samples is no part of the relation, so only coverage sees the repeat."""
    policy = Policy(Align(order="free"), coverage=EXACTLY)

    result = bench.changed(repeat_sample, policy)
    data = as_dict(result)

    assert result.outcome is FAIL
    assert data["first_divergence"] is None
    assert data["reason"].startswith("coverage exactly_once is violated")
    assert [each["kind"] for each in data["coverage"]["violations"]] == ["duplicate", "missing"]
    assert {name: data["coverage"]["violations"][0][name] for name in (
        "sample_id", "rank", "epoch", "position",
    )} == {"sample_id": 0, "rank": 0, "epoch": None, "position": 12}  # fmt: skip
    assert data["coverage"]["reason"] == data["reason"]
    assert as_text(result).startswith("FAIL  Coverage exactly_once is violated")


def test_a_divergence_keeps_its_place_and_coverage_is_added(bench):
    result = bench.changed(repeat_sample, Policy(coverage=EXACTLY))

    assert (result.first.step, result.first.kind) == (3, "sample_id")
    assert result.coverage.violations_total == 2
    assert "the runs part at step 3" in result.reason
    assert "exactly_once" in result.reason
    assert "Coverage" in as_text(result)


def test_a_divergence_fails_whatever_coverage_says(bench):
    def change(steps: list[Step]) -> None:
        steps[2].change("optimizer:head.weight:value", np.zeros((9, 3), np.float32))

    result = bench.changed(change, Policy(coverage=EXACTLY))

    assert result.outcome is FAIL
    assert result.coverage.outcome is PASS


def test_coverage_that_cannot_be_judged_turns_a_pass_into_an_abstain(bench):
    result = bench.changed(lambda steps: None, Policy(coverage=Coverage("exactly_once")))

    assert result.outcome is ABSTAIN
    assert result.first is None


def test_a_policy_of_coverage_alone_is_judged_by_it(bench):
    """All values are ignored, and all differ; the samples are the relation."""
    nothing = Policy(Align(order="free"), (Rule("*", ignore=True),), EXACTLY)

    def other_losses(steps: list[Step]) -> None:
        for step in steps:
            step.change("loss:loss:value", np.array(np.float32(7)))

    def both(steps: list[Step]) -> None:
        other_losses(steps)
        repeat_sample(steps)

    assert bench.changed(other_losses, nothing).outcome is PASS
    assert bench.changed(both, nothing).outcome is FAIL
    assert bench.changed(other_losses, replace(nothing, coverage=None)).outcome is ABSTAIN


def test_a_repeated_reference_is_not_judged_for_coverage(bench):
    """Its samples are no matter of the declared coverage, which is the target's."""
    steps = Run().steps(5)
    repeat_sample(steps)
    bad, good = bench.write(steps), bench.write(Run().steps(5))

    result = diff_runs(bad, [bad], Policy(Align(order="free"), coverage=EXACTLY), repeat=bad)

    assert result.outcome is FAIL
    assert diff_runs(good, [good], Policy(coverage=EXACTLY), repeat=good).outcome is PASS


def test_segments_are_judged_as_one_run_without_the_steps_done_again(bench):
    reference = bench.write(Run().steps(5))
    parts = (
        bench.write(Run().steps(3), complete=False),
        bench.write(Run().steps(5, start=2)),
    )

    result = diff_runs(reference, parts, Policy(coverage=EXACTLY))

    assert result.outcome is PASS
    assert result.coverage.observations == 20


def test_a_resumed_target_may_have_begun_its_epoch_before(bench):
    target = [with_epoch(step) for step in Run().steps(5, start=3)]
    end = replace(target[-1].rows[target[-1].find("data:loader[0]:epoch")], field="pass_end")
    target[-1].rows.append(replace(end, value={"epoch": 0, "batches": 2}))
    paths = bench.write(Run().steps(5)), bench.write(target)
    policy = Policy(Align(kind="resume"), coverage=replace(EXACTLY, scope="epoch"))

    result = diff_runs(paths[0], [paths[1]], policy)

    assert result.outcome is ABSTAIN
    assert "goes on from a checkpoint" in result.reason


def with_epoch(step: Step) -> Step:
    """The step with the epoch of its batch, as the recorder writes it."""
    at = step.find(IDS)
    epoch = replace(step.rows[at], field="epoch", value=0, flags=Flag.CONTEXT, kind=Kind.SCALAR)
    step.rows.insert(at + 1, epoch)
    return step


def test_the_effective_policy_shows_the_coverage(bench):
    result = bench.changed(lambda steps: None, Policy(coverage=EXACTLY))

    assert as_dict(result)["policy"]["coverage"]["policy"] == "exactly_once"
