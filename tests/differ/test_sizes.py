"""How large a difference is, as reports show it."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from synthetic import Run, Step

from traceparity.differ.policy import Align, Policy
from traceparity.differ.report_json import as_dict
from traceparity.differ.report_text import as_text

SITE = "gradient:head.weight:grad"


def changed(change: Callable[[np.ndarray], None], site: str = SITE) -> Callable[[list[Step]], None]:
    def apply(steps: list[Step]) -> None:
        value = steps[1].rows[steps[1].find(site)].value.copy()
        change(value)
        steps[1].change(site, value)

    return apply


def test_every_measure_of_kept_values_is_in_text_and_json(bench):
    def change(value: np.ndarray) -> None:
        value[2, 1] += 0.5
        value[3, 0] = np.nan
        value[4, 0] = np.inf

    result = bench.changed(changed(change), capture="values")

    text, metrics = (
        " ".join(as_text(result).split()),
        as_dict(result)["first_divergence"]["metrics"],
    )
    assert "3 of 27 elements, first (2, 1)" in text
    for words in ("relative L2 inf", "largest inf", "cosine 0.9", "NaN 0 against 1"):
        assert words in text, words
    assert "infinite 0 against 1" in text
    assert (metrics["nans"], metrics["infinities"]) == ([0, 1], [0, 1])
    assert (metrics["unequal"], metrics["elements"], metrics["first_index"]) == (3, 27, [2, 1])
    assert metrics["estimated"] is False


def test_finite_differences_have_units_in_the_last_place_and_a_largest_relative_one(bench):
    def change(value: np.ndarray) -> None:
        value[0, 0] = np.nextafter(value[0, 0], np.float32(9))

    result = bench.changed(changed(change), capture="values")

    text, metrics = (
        " ".join(as_text(result).split()),
        as_dict(result)["first_divergence"]["metrics"],
    )
    assert "1 ULP" in text
    assert "largest relative" in text
    assert metrics["ulp"] == 1
    assert 0 < metrics["max_rel"] < 1e-6


def test_a_sketch_tells_an_estimate_and_nothing_else(bench):
    result = bench.changed(changed(lambda value: np.negative(value, out=value)))

    text, metrics = (
        " ".join(as_text(result).split()),
        as_dict(result)["first_divergence"]["metrics"],
    )
    assert "relative L2 about 2" in text
    assert metrics["estimated"] is True
    assert {name for name, value in metrics.items() if value is not None} == {"rel_l2", "estimated"}


def test_an_update_that_amplifies_round_off_says_so(bench):
    """An adaptive optimizer makes a whole step out of a gradient that is round-off."""

    def reference(steps: list[Step]) -> list[Step]:
        steps[1].change(SITE, np.full((9, 3), 4e-10, np.float32))
        return steps

    target = reference(Run().steps(3))
    target[1].change("optimizer:head.weight:value", np.ones((9, 3), np.float32))
    state = reference(Run().steps(3))
    state[1].change("optimizer:optimizer[0]:exp_avg[head.weight]", np.ones((9, 3), np.float32))

    for other in (target, state):
        first = bench.diff(reference(Run().steps(3)), other).first
        gradient = next(each for each in first.evidence if each.what == "gradient")
        assert "its gradient has norm 2.08e-09" in gradient.detail
        assert "round-off, which the optimizer amplifies" in gradient.detail


def test_an_ordinary_gradient_is_not_called_round_off(bench):
    def change(steps: list[Step]) -> None:
        steps[1].change("optimizer:head.weight:value", np.ones((9, 3), np.float32))

    first = bench.changed(change).first

    assert not any("amplifies" in each.detail for each in first.evidence)


def test_a_renamed_site_is_shown_under_the_name_of_each_run(bench):
    target = Run().steps(3)
    for step in target:
        for at, row in enumerate(step.rows):
            component = re.sub("^head", "tail", row.component)
            field = row.field.replace("[head.", "[tail.")
            step.rows[at] = replace(row, component=component, field=field)
    target[1].change("forward:tail:output[0]", np.ones((9, 3), np.float32))

    result = bench.diff(Run().steps(3), target, Policy(Align(rename=(("head", "tail"),))))

    shown = [command for command in result.next_commands if command.startswith("tp-show")]
    assert "'forward:head:*'" in shown[0]
    assert "'forward:tail:*'" in shown[1]
