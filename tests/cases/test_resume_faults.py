"""Everything that a checkpoint can forget, recorded for real and named where it first shows."""

import forked
import pytest
import resume_faults as faults

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy
from traceparity.differ.result import DiffResult, Outcome

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    for variant in ("whole", "split"):
        out = folder / f"{variant}.trace"
        forked.record(faults.train, [variant, str(folder)], out, folder)
    return folder


def resumed(folder, fault: str, **align: object) -> DiffResult:
    out = folder / f"{fault}.trace"
    if not out.exists():
        forked.record(faults.train, [fault, str(folder)], out, folder)
    policy = Policy(Align(kind="resume", step_offset=faults.SPLIT, **align))
    return diff_runs(folder / "whole.trace", [out], policy)


def test_a_good_resume_passes_with_its_generators_compared(folder):
    assert resumed(folder, "nothing").outcome is Outcome.PASS
    assert resumed(folder, "nothing", rng="compare").outcome is Outcome.PASS


def test_both_parts_in_one_command_are_the_whole_run(folder):
    resumed(folder, "nothing")
    parts = [folder / "split.trace", folder / "nothing.trace"]

    result = diff_runs(folder / "whole.trace", parts, Policy())

    assert result.outcome is Outcome.PASS, result.reason
    assert result.compared.steps == faults.TOTAL


@pytest.mark.parametrize("fault", faults.FAULTS)
def test_a_fault_is_named_in_the_first_resumed_step(folder, fault):
    result = resumed(folder, fault)

    first = result.first
    assert result.outcome is Outcome.FAIL, result.reason
    assert (first.step, first.target_step) == (faults.SPLIT, 0)
    place = f"{first.phase}:{first.component}:{first.field}"
    assert any(each in place for each in faults.FAULTS[fault].split("|")), place


@pytest.mark.parametrize("generator", ["python", "numpy", "torch"])
def test_a_generator_that_was_not_restored_is_evidence_and_the_place_where_declared(
    folder, generator
):
    as_context = resumed(folder, generator).first
    declared = resumed(folder, generator, rng="compare").first

    assert any(
        each.what == "rng" and each.equal is False and generator in each.detail
        for each in as_context.evidence
    )
    assert (declared.step, declared.component, declared.kind) == (2, f"rng.{generator}", "rng")
