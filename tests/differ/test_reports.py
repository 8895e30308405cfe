"""Reports: text for a tired person, JSON for tools, JUnit and annotations for CI."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from synthetic import Run, Step

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.report_ci import as_github, as_junit
from traceparity.differ.report_json import as_dict, as_json
from traceparity.differ.report_text import as_text
from traceparity.differ.result import Outcome

KEYS = {
    "schema_version", "traceparity_version", "outcome", "reason", "reference", "target",
    "alignment", "policy", "compared", "first_divergence", "divergences", "coverage",
    "environment_differences", "not_observed",
}  # fmt: skip
PLACE = {
    "rank", "step", "target_step", "microbatch", "call", "phase", "component", "field", "kind",
    "reference", "target", "metrics", "location", "evidence",
}  # fmt: skip


@pytest.fixture
def failed(bench):
    def change(steps: list[Step]) -> None:
        output = steps[2].rows[steps[2].find("forward:body.1:output[0]")].value
        steps[2].change("forward:body.1:output[0]", output * np.float32(1.01))
        steps[3].change("loss:loss:value", np.array(np.float32(7)))

    return bench.changed(change)


@pytest.fixture
def passed(bench):
    return bench.diff(Run().steps(3), Run().steps(3))


def test_json_has_the_names_of_schema_version_1(failed):
    data = as_dict(failed)

    assert data.keys() >= KEYS
    assert data["schema_version"] == 1
    assert data["first_divergence"].keys() == PLACE
    assert data["compared"].keys() >= {
        "ranks", "steps", "observations", "skipped_equal", "ignored", "undecided",
    }  # fmt: skip
    assert data["reference"].keys() == {"path", "ranks", "steps", "complete", "content_digest"}
    assert data["alignment"] == {"kind": "start", "step_offset": 0, "how": "declared"}


def test_json_tells_the_place_and_the_estimated_size(failed):
    first = as_dict(failed)["first_divergence"]

    assert (first["step"], first["phase"], first["component"]) == (2, "forward", "body.1")
    assert first["metrics"]["rel_l2"] == pytest.approx(0.01, rel=0.2)
    assert first["metrics"]["estimated"] is True
    assert first["reference"]["shape"] == [9, 3]
    assert first["location"] == "train.py:10"


def test_json_lists_the_first_divergence_of_each_diverging_step(failed):
    steps = [each["step"] for each in as_dict(failed)["divergences"]]

    assert steps == [2, 3]


def test_json_of_a_pass_has_no_first_divergence(passed):
    data = as_dict(passed)

    assert data["outcome"] == "PASS"
    assert data["first_divergence"] is None
    assert data["coverage"] is None


def test_json_is_readable_by_strict_parsers_whatever_the_numbers(bench):
    result = bench.changed(
        lambda steps: steps[1].change("loss:loss:value", np.array(np.float32(np.inf)))
    )

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    first = json.loads(as_json(result), parse_constant=refuse)["first_divergence"]

    assert first["kind"] == "nonfinite"
    assert first["target"]["value"] == "inf"


def test_text_begins_with_the_outcome_and_names_the_place(failed):
    lines = as_text(failed).splitlines()

    assert lines[0] == "FAIL  The runs part at step 2, in the forward pass."
    assert any("body.1  output[0]" in line for line in lines)
    assert any("train.py:10" in line for line in lines)
    assert any("relative L2 about 0.01" in line for line in lines)
    assert any("everything compared in steps 0 to 1" in line for line in lines)


def test_text_fits_in_80_columns_except_for_commands(failed):
    long = [line for line in as_text(failed).splitlines() if len(line) > 80]

    assert all(line.startswith("  tp-") for line in long)


def test_text_names_commands_that_show_more(failed):
    text = as_text(failed)

    assert re.search(r"tp-record .*--capture values --steps 2:3 -- train.py --lr 0.1", text)
    assert re.search(r"tp-show .*1.trace --step 2", text)


def test_text_has_escapes_only_where_colour_is_asked_for(failed):
    assert "\x1b" not in as_text(failed)
    assert as_text(failed, colour=True).startswith("\x1b[31;1mFAIL\x1b[0m")


def test_text_of_a_resume_gives_both_step_numbers(bench):
    target = Run().steps(6, 3)
    target[1].change("loss:loss:value", np.array(np.float32(7)))

    result = bench.diff(Run().steps(6), target, Policy(Align(kind="resume", step_offset=3)))

    assert as_text(result).startswith("FAIL  The runs part at step 4 (target step 1), in the loss.")


def test_text_shows_both_lists_of_sample_ids(bench):
    result = bench.changed(lambda steps: steps[1].change("data:loader[0]:sample_ids", [7, 5, 6, 4]))

    assert "samples 4, 5, 6, 7" in as_text(result)
    assert "samples 7, 5, 6, 4" in as_text(result)


def test_text_shows_how_the_difference_grows(bench):
    def change(steps: list[Step]) -> None:
        for number, step in enumerate(steps):
            step.change("loss:loss:value", np.array(np.float32(10 + number)))

    text = as_text(bench.changed(change))

    assert "How it grows" in text
    assert "loss 2 against 10" in text


def test_text_says_what_differs_in_the_environment_and_what_was_not_observed(bench):
    result = bench.diff(
        Run().steps(2),
        Run().steps(2),
        notes=[("body", "compiled by torch.compile")],
    )
    result = replace(result, environment=environments())

    text = as_text(result)

    assert "torch: 2.12.0 against 2.13.0" in text
    assert "body (reference): compiled by torch.compile" in text


def environments():
    from traceparity.differ.environment import environment_differences
    from traceparity.tracefmt.records import Header

    return environment_differences(
        Header(versions={"torch": "2.12.0", "numpy": "2"}, environment={"git": {"commit": "a"}}),
        Header(versions={"torch": "2.13.0", "numpy": "2"}, environment={"git": {"commit": "b"}}),
    )


def test_environment_differences_are_flattened_by_one_level():
    assert [(each.name, each.reference, each.target) for each in environments()] == [
        ("torch", "2.12.0", "2.13.0"),
        ("git.commit", "a", "b"),
    ]


def test_junit_is_one_case_with_the_report_as_its_failure(failed, passed):
    suite = ElementTree.fromstring(as_junit(failed))

    assert suite.attrib["failures"] == "1"
    assert "body.1" in suite.find("testcase/failure").text
    assert ElementTree.fromstring(as_junit(passed)).attrib["failures"] == "0"


def test_github_annotations_point_to_the_source_line(failed, passed):
    assert as_github(failed).startswith("::error file=train.py,line=10,title=traceparity FAIL::")
    assert as_github(passed).startswith("::notice title=traceparity PASS::")


def test_a_known_number_is_not_to_be_recorded_again(bench):
    known = bench.changed(lambda steps: steps[1].change("scheduler:scheduler.last_epoch:value", 9))
    large = bench.changed(
        lambda steps: steps[1].change("forward:head:output[0]", np.zeros((9, 3), np.float32))
    )

    assert [command.split()[0] for command in known.next_commands] == ["tp-show", "tp-show"]
    assert "--site 'scheduler:scheduler.last_epoch:*'" in known.next_commands[0]
    assert [command.split()[0] for command in large.next_commands] == [
        "tp-record",
        "tp-record",
        "tp-show",
        "tp-show",
    ]


def test_what_is_to_be_recorded_again_gets_names_of_its_own(bench, tmp_path):
    def change(steps):
        steps[1].change("forward:head:output[0]", np.zeros((9, 3), np.float32))

    changed = Run().steps(5)
    change(changed)
    names = tmp_path / "run.a", tmp_path / "run.b", tmp_path / "one.trace"
    for name, steps in zip(names, (Run().steps(5), changed, changed), strict=True):
        bench.write(steps).rename(name)

    two = diff_runs(names[0], [names[1]], Policy()).next_commands
    rules = Rule("*", ignore=True), Rule("forward:head:*")
    shifted = Policy(Align(kind="resume", step_offset=1), rules)
    one = diff_runs(names[2], [names[2]], shifted).next_commands

    assert [word for command in two for word in command.split() if ".values" in word] == [
        f"{names[0]}.values.trace",
        f"{names[1]}.values.trace",
    ]
    (again,) = (command for command in one if command.startswith("tp-record"))
    assert f"-o {tmp_path}/one.values.trace --capture values --steps 0:1,1:2 " in again


def test_another_dtype_of_equal_values_is_told_as_such(bench):
    def widen(steps, factor):
        at = steps[1].find("forward:head:output[0]")
        value = steps[1].rows[at].value.astype(np.float64) * factor
        steps[1].change("forward:head:output[0]", value)

    equal = bench.changed(lambda steps: widen(steps, 1), capture="values")
    other = bench.changed(lambda steps: widen(steps, 2), capture="values")

    assert equal.first.kind == other.first.kind == "dtype"
    assert equal.first.metrics.unequal == 0
    assert "float32 against float64, of equal values" in as_text(equal)
    assert "float32 against float64, values differ: relative L2 1" in as_text(other)


def test_a_size_that_nobody_knows_is_not_called_estimated(bench):
    zeros = np.zeros((9, 3), np.float32)

    result = bench.changed(
        lambda steps: steps[1].change("forward:head:output[0]", zeros), capture="digest"
    )

    assert (result.first.metrics.rel_l2, result.first.metrics.estimated) == (None, False)


def test_a_relation_that_was_never_looked_at_is_said_in_one_sentence(bench):
    result = bench.diff(Run().steps(2), Run().steps(2), Policy(Align(kind="accumulation")))

    assert result.outcome is Outcome.ABSTAIN
    assert "0 observations" not in result.reason
