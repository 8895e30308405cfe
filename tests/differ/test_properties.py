"""Promises over all traces: reflexive, indifferent to harmless order, and never blind to a bit."""

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import Run, Step, judged_rows, write_trace

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.result import DiffResult, Outcome
from traceparity.tracefmt.records import Phase

FEW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
RELAXED = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
RUN = Run(batches=2)
ROWS = list(judged_rows(RUN.steps(4)))
POLICIES = [
    Policy(),
    Policy(rules=(Rule("*", rtol=1e-3, atol=1e-6),)),
    Policy(rules=(Rule("*", rel_l2=1e-3), Rule("loss:*", ulp=2))),
    Policy(Align(unmatched="allow", evaluation="compare", device="compare")),
    Policy(Align(phases=("gradient", "optimizer"))),
    Policy(Align(kind="resume")),
    Policy(rules=(Rule("*", rtol=1e-3, atol=1e-6, symmetric=True),)),
    Policy(rules=(Rule("*", rel_l2=1e-3, symmetric=True, equal_nan=True),)),
    Policy(rules=(Rule("forward:*", ignore=True), Rule("*", ulp=3))),
    Policy(Align(order="free", rng="compare")),
    Policy(Align(kind="accumulation", microbatches=(2, 2))),
    Policy(Align(ranks="replicated", rename=(("body.{i}", "body.{i}"),))),
]
SYMMETRIC = [
    Rule("*", rtol=1e-2, atol=1e-3, symmetric=True),
    Rule("*", rel_l2=1e-2, symmetric=True),
    Rule("*", atol=1e-2),
    Rule("*", ulp=1000),
]


@contextmanager
def written(*runs: list[Step], **options) -> Iterator[list[Path]]:
    with tempfile.TemporaryDirectory() as folder:
        yield [
            write_trace(Path(folder) / f"{at}.trace", steps, **options)
            for at, steps in enumerate(runs)
        ]


def diff(reference: list[Step], target: list[Step], policy: Policy = POLICIES[0]) -> DiffResult:
    with written(reference, target, capture="values") as paths:
        return diff_runs(paths[0], paths[1:], policy)


def with_flipped_bit(steps: list[Step], step: int, row: int, bit: int) -> str:
    """Flip a bit of a value (of a plain one: change it); returns its site."""
    seen = steps[step].rows[row]
    if isinstance(seen.value, np.ndarray):
        data = bytearray(np.ascontiguousarray(seen.value).tobytes())
        data[bit % (8 * len(data)) // 8] ^= 1 << bit % 8
        value = np.frombuffer(bytes(data), seen.value.dtype).reshape(seen.value.shape)
    elif isinstance(seen.value, bool):
        value = not seen.value
    elif isinstance(seen.value, list):
        value = [*seen.value[:-1], -1]
    else:
        value = f"{seen.value}?" if isinstance(seen.value, str) else seen.value + 1
    steps[step].rows[row] = replace(seen, value=value)
    return seen.site


@pytest.mark.parametrize("policy", POLICIES)
def test_a_trace_equals_itself_under_every_policy(policy):
    assert diff(RUN.steps(3), RUN.steps(3), policy).outcome is Outcome.PASS


@RELAXED
@given(st.sampled_from(ROWS), st.integers(0, 10_000))
def test_a_flipped_bit_in_any_judged_row_is_found_at_exactly_its_place(at, bit):
    step, row = at
    target = RUN.steps(4)
    seen = target[step].rows[row]
    site = with_flipped_bit(target, step, row, bit)

    result = diff(RUN.steps(4), target)

    first = result.first
    assert result.outcome is Outcome.FAIL
    assert (first.step, first.microbatch) == (step, seen.microbatch if first.phase in BATCH else 0)
    assert f"{first.phase}:{first.component}:{first.field}" == site


BATCH = ("data", "forward", "loss", "backward")


@RELAXED
@given(st.randoms(use_true_random=False))
def test_permuting_what_is_a_set_changes_no_verdict(random):
    target = RUN.steps(3)
    for step in target:
        for phase in (Phase.STATE, Phase.GRADIENT, Phase.OPTIMIZER, Phase.SCHEDULER):
            at = [i for i, row in enumerate(step.rows) if row.phase == phase]
            rows = [step.rows[i] for i in at]
            random.shuffle(rows)
            for i, row in zip(at, rows, strict=True):
                step.rows[i] = row

    assert diff(RUN.steps(3), target).outcome is Outcome.PASS


@RELAXED
@given(st.sampled_from(ROWS), st.integers(0, 10_000))
def test_exact_verdicts_are_symmetric(at, bit):
    target = RUN.steps(4)
    with_flipped_bit(target, *at, bit)

    there, back = diff(RUN.steps(4), target), diff(target, RUN.steps(4))

    assert there.outcome is back.outcome
    assert (there.first.step, there.first.phase, there.first.component, there.first.field) == (
        back.first.step,
        back.first.phase,
        back.first.component,
        back.first.field,
    )


@FEW
@given(
    st.sampled_from(ROWS),
    st.integers(0, 10_000),
    st.sampled_from(SYMMETRIC),
    st.sampled_from(["sketch", "values"]),
)
def test_symmetric_policies_give_symmetric_verdicts(at, bit, rule, capture):
    target, policy = RUN.steps(4), Policy(rules=(rule,))
    with_flipped_bit(target, *at, bit)

    with written(RUN.steps(4), target, capture=capture) as paths:
        there = diff_runs(paths[0], [paths[1]], policy)
        back = diff_runs(paths[1], [paths[0]], policy)

    assert there.outcome is back.outcome
    assert (there.first is None) == (back.first is None)
    if there.first is not None:
        assert (there.first.step, there.first.component, there.first.field) == (
            back.first.step,
            back.first.component,
            back.first.field,
        )


@FEW
@given(
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from([*ROWS, None]),
    st.sampled_from(POLICIES[:4]),
)
def test_the_size_of_chunks_changes_no_verdict(size, other_size, at, policy):
    target = RUN.steps(4)
    if at is not None:
        with_flipped_bit(target, *at, 5)
    whole = diff(RUN.steps(4), target, policy)

    with (
        written(RUN.steps(4), capture="values", most_rows=size) as left,
        written(target, capture="values", most_rows=other_size) as right,
    ):
        parted = diff_runs(left[0], right, policy)

    assert parted.outcome is whole.outcome
    assert parted.compared == whole.compared
    assert replaced(parted) == replaced(whole)


def replaced(result: DiffResult) -> object:
    """Where two runs part, without what the files are called."""
    first = result.first
    return first and (
        first.step, first.microbatch, first.call, first.phase, first.component, first.field,
        first.kind, first.metrics,
    )  # fmt: skip


@FEW
@given(st.sampled_from(ROWS), st.integers(0, 10_000), st.permutations(["embed", "body.0", "head"]))
def test_a_flipped_bit_is_found_under_a_renaming_too(at, bit, names):
    mapping = dict(zip(["embed", "body.0", "head"], names, strict=True))
    target = RUN.steps(4)
    site = with_flipped_bit(target, *at, bit)
    phase, component, field = site.split(":")
    rename(target, mapping)

    result = diff(RUN.steps(4), target, Policy(Align(rename=tuple(mapping.items()))))

    first = result.first
    assert result.outcome is Outcome.FAIL
    assert (first.step, first.phase) == (at[0], phase)
    assert (first.component, first.field) == renamed(component, field, mapping)


@RELAXED
@given(st.sets(st.integers(1, 7)), st.sampled_from([*ROWS, None]))
def test_splitting_a_run_into_segments_changes_no_verdict(cuts, at):
    """Each segment lists its state in full, as a resumed run does."""
    bounds = [0, *sorted(cuts), 8]
    parts = [RUN.steps(stop, start) for start, stop in itertools.pairwise(bounds)]
    site = None
    if at is not None and RUN.steps(8)[at[0]].rows[at[1]].phase != Phase.STATE:
        part = max(i for i, start in enumerate(bounds[:-1]) if start <= at[0])
        seen = RUN.steps(8)[at[0]].rows[at[1]]
        step = parts[part][at[0] - bounds[part]]
        row = next(
            i
            for i, other in enumerate(step.rows)
            if other.site == seen.site and other.microbatch == seen.microbatch
        )
        site = with_flipped_bit(parts[part], at[0] - bounds[part], row, 0)

    with written(RUN.steps(8), *parts) as paths:
        result = diff_runs(paths[0], paths[1:], Policy())

    assert result.outcome is (Outcome.FAIL if site else Outcome.PASS)
    if site:
        first = result.first
        assert (first.step, f"{first.phase}:{first.component}:{first.field}") == (at[0], site)


@RELAXED
@given(st.permutations(["embed", "body.0", "body.1", "head"]))
def test_renaming_by_a_bijection_changes_no_verdict(names):
    mapping = dict(zip(["embed", "body.0", "body.1", "head"], names, strict=True))
    target = RUN.steps(3)
    rename(target, mapping)

    assert diff(RUN.steps(3), target, Policy(Align(rename=tuple(mapping.items())))).outcome is (
        Outcome.PASS
    )


def rename(steps: list[Step], mapping: dict[str, str]) -> None:
    for step in steps:
        for i, row in enumerate(step.rows):
            component, field = renamed(row.component, row.field, mapping)
            step.rows[i] = replace(row, component=component, field=field)


def renamed(component: str, field: str, mapping: dict[str, str]) -> tuple[str, str]:
    """A component and a field, which may name a parameter in brackets, under their new names."""
    found = component, field
    for old, new in mapping.items():
        if component == old or component.startswith(f"{old}."):
            found = new + component[len(old) :], found[1]
        if f"[{old}." in field:
            found = found[0], field.replace(f"[{old}.", f"[{new}.")
    return found
