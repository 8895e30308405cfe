"""One run judged by itself: values that are not finite, with and without coverage."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sampled import epoch, write_rank
from synthetic import Run, Step, write_trace

from traceparity.differ import check_json
from traceparity.differ.check import CheckResult, check_run
from traceparity.differ.policy import Coverage, Policy, Rule
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Flag, Kind, Phase
from traceparity.verify.run_verdict import RunVerdict
from traceparity.verify.verdict_text import as_text

PASS, FAIL, ABSTAIN = Outcome.PASS, Outcome.FAIL, Outcome.ABSTAIN
WIDE = (9, 3)


def with_value(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed.flat[4] = value
    return changed


@pytest.fixture
def check(tmp_path: Path):
    """Checks a synthetic run after a change."""
    numbers = itertools.count()

    def check(
        change: Callable[[list[Step]], object], policy: Policy | None = None, **options: object
    ) -> CheckResult:
        steps = Run().steps(4)
        change(steps)
        path = write_trace(tmp_path / f"{next(numbers)}.trace", steps, **options)
        return check_run([path], policy or Policy())

    return check


def put(step: int, site: str, value: float) -> Callable[[list[Step]], None]:
    """A change that puts a value into one element of a tensor."""

    def change(steps: list[Step]) -> None:
        at = steps[step].find(site)
        steps[step].change(site, with_value(steps[step].rows[at].value, value))

    return change


def test_a_finite_run_passes_and_says_what_was_judged(check):
    result = check(lambda steps: None)

    assert result.outcome is PASS
    assert "tensors are finite" in result.reason


@pytest.mark.parametrize(
    "site",
    [
        "backward:body.0.weight:grad",
        "gradient:body.0.weight:grad",
        "optimizer:body.0.weight:value",
        "optimizer:optimizer[0]:exp_avg[body.0.weight]",
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_gradients_states_and_updated_parameters_must_be_finite(check, site, value):
    result = check(put(2, site, value))

    assert result.outcome is FAIL
    (found,) = result.violations
    assert f"{found.phase}:{found.component}:{found.field}" == site
    assert (found.step, found.seen.nonfinite) == (2, 1)


@pytest.mark.parametrize("capture", ["digest", "sketch", "values"])
def test_a_nan_in_an_output_counts_and_an_infinity_alone_does_not(check, capture):
    nan = check(put(1, "forward:body.0:output[0]", np.nan), capture=capture)

    assert nan.outcome is FAIL
    assert nan.violations[0].location == "train.py:10"


def test_a_mask_of_infinities_is_no_violation_and_is_said(check):
    result = check(put(1, "forward:body.0:input[0]", -np.inf))

    assert result.outcome is PASS
    assert "infinities alone, as masks do" in result.notes[0]


@pytest.mark.parametrize(("value", "outcome"), [(-np.inf, PASS), (np.nan, FAIL)])
def test_a_small_tensor_is_judged_by_its_own_values(check, value, outcome):
    """Its norm is not taken where it is not finite."""
    result = check(
        lambda steps: steps[1].add(
            Phase.FORWARD, "body.0", "input[1]", np.array([0, value], np.float32)
        )
    )

    assert result.outcome is outcome


def test_the_first_place_is_first_by_step_and_then_by_the_order_of_a_step(check):
    def change(steps: list[Step]) -> None:
        put(3, "forward:embed:output[0]", np.nan)(steps)
        put(2, "gradient:head.weight:grad", np.nan)(steps)
        put(2, "optimizer:body.0.weight:value", np.nan)(steps)
        put(2, "backward:head.weight:grad", np.nan)(steps)

    result = check(change)

    assert [(found.step, found.phase) for found in result.violations] == [
        (2, "backward"), (2, "gradient"), (2, "optimizer"), (3, "forward"),
    ]  # fmt: skip
    assert result.violations_total == 4
    assert result.reason.startswith("backward:head.weight:grad has 1 non-finite value")


def test_an_overflow_that_the_scaler_answers_is_no_violation(check):
    def change(steps: list[Step]) -> None:
        put(1, "gradient:head.weight:grad", np.inf)(steps)
        steps[1].add(Phase.OPTIMIZER, "optimizer[0]", "skipped", True, kind=Kind.MARKER)

    result = check(change)

    assert result.outcome is PASS
    assert "scaler left out" in result.notes[0]


def test_a_parameter_that_is_no_number_counts_whatever_the_scaler_did(check):
    def change(steps: list[Step]) -> None:
        put(1, "optimizer:head.weight:value", np.nan)(steps)
        steps[1].add(Phase.OPTIMIZER, "optimizer[0]", "skipped", True, kind=Kind.MARKER)

    assert check(change).outcome is FAIL


def test_context_and_ignored_sites_do_not_count(check):
    def change(steps: list[Step]) -> None:
        worse = np.full(WIDE, np.nan, np.float32)
        steps[1].add(Phase.FORWARD, "body.0", "input_after[0]", worse, flags=Flag.CONTEXT)
        put(1, "gradient:head.weight:grad", np.nan)(steps)

    ignored = Policy(rules=(Rule("gradient:head.*", ignore=True),))

    assert check(change).violations_total == 1
    assert check(change, ignored).outcome is PASS


def test_many_places_are_counted_and_the_first_ones_told(tmp_path):
    steps = Run().steps(40)
    for step in steps:
        for row in list(step.rows):
            if isinstance(row.value, np.ndarray) and row.phase == Phase.GRADIENT:
                step.change(row.site, with_value(row.value, np.nan))
    path = write_trace(tmp_path / "run.trace", steps)

    result = check_run([path], Policy())

    assert result.violations_total == 160
    assert len(result.violations) == 100
    assert max(found.step for found in result.violations) == 24


def test_ranks_are_told_apart(tmp_path):
    run = tmp_path / "run.trace"
    run.mkdir()
    for rank in range(2):
        steps = Run().steps(2)
        if rank:
            put(1, "gradient:head.weight:grad", np.nan)(steps)
        write_trace(run / f"rank{rank}.trace", steps, rank=rank, world_size=2)

    result = check_run([run], Policy())

    assert result.violations[0].rank == 1
    assert "on rank 1" in result.reason


def test_a_trace_in_which_nothing_can_be_judged_abstains(tmp_path):
    path = write_rank(tmp_path / "ids.trace", [epoch([0, 1])])

    assert check_run([path], Policy()).outcome is ABSTAIN
    assert check_run([path], Policy(), finite=False).outcome is ABSTAIN
    assert (
        check_run([path], Policy(coverage=Coverage("exactly_once", expected=(0, 1)))).outcome
        is PASS
    )


def test_an_incomplete_trace_never_passes(check):
    result = check(lambda steps: None, complete=False)

    assert result.outcome is ABSTAIN
    assert "incomplete" in result.reason


def test_an_incomplete_trace_still_fails_for_what_it_holds(check):
    assert check(put(2, "gradient:head.weight:grad", np.nan), complete=False).outcome is FAIL


def test_coverage_and_non_finite_values_fail_together(tmp_path):
    steps = Run().steps(2)
    put(1, "gradient:head.weight:grad", np.nan)(steps)
    path = write_trace(tmp_path / "run.trace", steps)
    policy = Policy(coverage=Coverage("exactly_once", expected="range(0, 8)", scope="trace"))

    passed, failed = check_run([path], policy, finite=False), check_run([path], policy)
    both = check_run(
        [path], Policy(coverage=Coverage("exactly_once", expected=(1,), scope="trace"))
    )

    assert passed.outcome is PASS
    assert (failed.outcome, failed.coverage.outcome) == (FAIL, PASS)
    assert both.reason.count("; ") == 1


def test_the_json_result_has_the_shape_of_a_comparisons(check):
    data = check_json.as_dict(check(put(1, "gradient:head.weight:grad", np.nan)))

    assert list(data) == [
        "schema_version", "traceparity_version", "outcome", "reason", "target", "policy",
        "coverage", "violations", "violations_total", "not_observed", "notes",
    ]  # fmt: skip
    assert data["coverage"] is None
    assert data["violations"][0]["kind"] == "nonfinite"
    assert data["violations"][0]["target"]["nonfinite"] == 1


def test_the_text_report_leads_with_the_place(check):
    result = check(put(1, "gradient:head.weight:grad", np.nan))
    text = as_text(RunVerdict(result.outcome, result.reason, result))

    assert text.startswith("FAIL  Gradient:head.weight:grad has 1 non-finite value in step 1")
    assert "Non-finite values" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_segment_that_began_from_a_checkpoint_does_steps_again(tmp_path):
    """Step 2 of the first part was rolled back: the second part has its samples again."""
    parts = Run().steps(3), Run().steps(5, start=2)
    paths = [
        write_trace(tmp_path / f"{number}.trace", steps, complete=bool(number))
        for number, steps in enumerate(parts)
    ]
    policy = Policy(coverage=Coverage("exactly_once", expected="range(0, 20)", scope="trace"))

    result = check_run(paths, policy)

    assert (result.outcome, result.coverage.observations) == (PASS, 20)
