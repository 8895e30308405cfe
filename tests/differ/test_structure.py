"""Inserted, removed, renamed and reordered modules."""

import numpy as np
from synthetic import LAYERS, Run, Step

from traceparity.differ.policy import Align, Policy
from traceparity.differ.result import Outcome
from traceparity.tracefmt.records import Phase

ALLOW = Policy(Align(unmatched="allow"))


def parameterless(steps: list[Step]) -> list[Step]:
    """The run with an extra module without parameters between the two of the body."""
    for step in steps:
        at = step.find("forward:body.1:input[0]")
        template = step.rows[at]
        for name in ("output[0]", "input[0]"):
            row = type(template)(Phase.FORWARD, "body.extra", name, template.value)
            step.rows.insert(at, row)
    return steps


def test_an_inserted_module_is_one_extra(bench):
    result = bench.diff(Run().steps(3), parameterless(Run().steps(3)))

    assert result.outcome is Outcome.FAIL
    assert (result.first.component, result.first.kind) == ("body.extra", "extra")
    assert [each.step for each in result.divergences] == [0, 1, 2]


def test_a_removed_module_is_one_missing(bench):
    result = bench.diff(parameterless(Run().steps(3)), Run().steps(3))

    assert (result.first.component, result.first.kind) == ("body.extra", "missing")


def test_an_inserted_module_hides_no_later_difference(bench):
    target = parameterless(Run().steps(3))
    target[1].change("forward:body.1:output[0]", np.zeros((9, 3), np.float32))

    result = bench.diff(Run().steps(3), target, ALLOW)

    assert (result.first.step, result.first.component) == (1, "body.1")


def test_allowed_modules_are_counted_and_pass(bench):
    result = bench.diff(Run().steps(3), parameterless(Run().steps(3)), ALLOW)

    assert result.outcome is Outcome.PASS
    assert result.compared.unmatched == 6


def renamed(run: Run, names: dict[str, str]) -> list[Step]:
    """The steps of ``run`` under other names."""
    from dataclasses import replace

    steps = run.steps(3)
    for step in steps:
        for at, row in enumerate(step.rows):
            component, field = row.component, row.field
            for old, new in names.items():
                if component == old or component.startswith(f"{old}."):
                    component = new + component[len(old) :]
                field = field.replace(f"[{old}.", f"[{new}.")
            step.rows[at] = replace(row, component=component, field=field)
    return steps


def test_declared_renames_line_modules_parameters_and_optimizer_state_up(bench):
    target = renamed(Run(), {"body.0": "blocks.0.fc", "body.1": "blocks.1.fc", "head": "lm_head"})
    pairs = (("body.{i}", "blocks.{i}.fc"), ("head", "lm_head"))

    result = bench.diff(Run().steps(3), target, Policy(Align(rename=pairs)))

    assert result.outcome is Outcome.PASS
    assert result.compared.observations > 0


def test_without_the_rename_the_first_new_name_is_a_divergence(bench):
    result = bench.diff(Run().steps(3), renamed(Run(), {"head": "lm_head"}))

    assert result.outcome is Outcome.FAIL
    assert result.first.kind in ("missing", "extra")


def test_a_difference_under_a_rename_is_named_as_the_target_calls_it(bench):
    target = renamed(Run(), {"head": "lm_head"})
    target[1].change("gradient:lm_head.weight:grad", np.zeros((9, 3), np.float32))

    first = bench.diff(Run().steps(3), target, Policy(Align(rename=(("head", "lm_head"),)))).first

    assert first.component == "lm_head.weight"
    assert first.reference_name == "gradient:head.weight:grad"


def test_the_longest_rename_wins_whatever_the_order():
    from traceparity.differ.rename import Renames

    pairs = [("layers.{i}", "blocks.{i}"), ("layers.{i}.fc1", "blocks.{i}.mlp.0"), ("tok", "wte")]

    for renames in (Renames(pairs), Renames(pairs[::-1])):
        assert renames.path("layers.12.fc1.weight") == "blocks.12.mlp.0.weight"
        assert renames.path("layers.3.fc12.weight") == "blocks.3.fc12.weight"
        assert renames.path("layers.3") == "blocks.3"
        assert renames.path("tok.weight") == "wte.weight"
        assert renames.path("token") == "token"
        assert renames.field("optimizer[0]", "exp_avg[tok.weight]") == "exp_avg[wte.weight]"


def test_another_number_of_layers_is_reported_at_the_first_new_parameter(bench):
    wide = Run((*LAYERS[:2], "body.9", *LAYERS[2:]))

    first = bench.diff(Run().steps(2), wide.steps(2)).first

    assert (first.step, first.phase, first.component) == (0, "state", "body.9.weight")
    assert first.kind == "extra"


def test_all_sites_of_an_inserted_module_are_one_difference(bench):
    evidence = bench.diff(Run().steps(3), parameterless(Run().steps(3))).first.evidence

    detail = next(each.detail for each in evidence if each.what == "structure")
    assert detail == "2 sites of body.extra are in the target only"


def test_allowed_sites_are_named_in_a_note(bench):
    (note,) = bench.diff(Run().steps(3), parameterless(Run().steps(3)), ALLOW).notes

    assert note.startswith("sites of one side only, allowed by the policy: ")
    assert "forward:body.extra:input[0], forward:body.extra:output[0]" in note
