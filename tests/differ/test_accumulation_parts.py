"""A target that accumulates gradients and comes in several parts."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import SNAPSHOT, Seen
from windows import rows_of, run

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.result import DiffResult, Outcome
from traceparity.tracefmt.records import Phase


def declared(*microbatches: int) -> Policy:
    counts = (microbatches[0], microbatches[1])
    align = Align(kind="accumulation", microbatches=counts)
    return Policy(align, (Rule("*", rtol=1e-5, atol=1e-6),))


def place(result: DiffResult) -> str:
    first = result.first
    return first and f"{first.step} {first.phase}:{first.component}:{first.field}"


def listing(number: int) -> list[Seen]:
    """What a part lists that begins with an update."""
    weight, calls = rows_of("weight", samples=[number]), np.array(float(number - 1))
    return [
        Seen(Phase.STATE, "layer.weight", "value", weight, SNAPSHOT),
        Seen(Phase.STATE, "layer.calls", "value", calls, SNAPSHOT),
    ]


def in_parts(bench: Any, cuts: list[list[int]], *at: int) -> list[Path]:
    """A run in parts, each of which lists its state when it begins."""
    steps, paths = run(*cuts), []
    for begin, end in itertools.pairwise([0, *at, len(cuts)]):
        part = steps[begin:end]
        if begin:
            part[0] = replace(part[0], rows=[*listing(begin), *part[0].rows])
        paths.append(bench.write(part, capture="values"))
    return paths


@pytest.mark.parametrize("at", [(2,), (1, 3), (4,)])
def test_a_target_in_several_parts_is_put_together_part_by_part(bench, at):
    """The last update is short, and the last part may have no other one."""
    reference = bench.write(run([8], [8], [8], [8], [4]), capture="values")
    parts = in_parts(bench, [[4, 4]] * 4 + [[4]], *at)

    result = diff_runs(reference, parts, declared(1, 2))

    assert result.outcome is Outcome.PASS, (result.reason, place(result))
    assert result.compared.steps == 5
    assert f"part 2 of the target begins at reference step {at[0]} (parameter" in result.notes[1]


def test_a_fault_in_a_later_part_is_named_with_both_numbers(bench):
    reference = bench.write(run([8], [8], [8], [8]), capture="values")
    parts = in_parts(bench, [[4, 4]] * 4, 2)
    wrong = run([4, 4], [4, 4], [4, 4], [4, 4])[2:]
    wrong[0].rows[:0] = listing(2)
    wrong[1].change("gradient:layer.weight:grad", np.zeros(5, np.float32))

    result = diff_runs(reference, [parts[0], bench.write(wrong, capture="values")], declared(1, 2))

    assert place(result) == "3 gradient:layer.weight:grad"
    assert (result.first.target_step, result.first.part) == (1, 2)


def test_another_count_in_a_later_part_is_named_with_both_numbers(bench):
    reference = bench.write(run([8], [8], [8], [8]), capture="values")
    parts = in_parts(bench, [[4, 4], [4, 4], [4, 4], [8]], 2)

    result = diff_runs(reference, parts, declared(1, 2))

    assert place(result) == "3 data:update:micro_batches"
    assert (result.first.target_step, result.first.part) == (1, 2)
