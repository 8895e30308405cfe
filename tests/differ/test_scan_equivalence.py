"""The look at a whole step at once says what the look at each of its rows says."""

import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import Run, Seen, Step, write_trace

from traceparity.differ import candidates, step_diff
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.report_json import as_json

STEPS = 3
SIZES = [0.0, 1e-40, 1e-25, 1e-9, 1e-5, 6.7e-4, 6.8e-4, 1.3e-3, 1e-2, 1e20, 3e38, np.inf, np.nan]
SCALES = [1.0, 1e-42, 1e-20, 1e19, 1e30]
"""Factors of both sides: squares that vanish in single precision, and norms that overflow."""


def changed(seen: Seen, size: float, way: str, seed: int) -> Seen:
    if not (isinstance(seen.value, np.ndarray) and seen.value.dtype == np.float32):
        return seen
    noise = np.random.default_rng(seed).standard_normal(seen.value.shape).astype(np.float32)
    with np.errstate(all="ignore"):
        if way == "factor":
            value = seen.value * np.float32(1 + size)
        elif way == "noise":
            value = seen.value + noise * np.abs(seen.value).max() * np.float32(size)
        elif way == "dtype":
            value = seen.value.astype(np.float64 if size < 1e-3 else np.int32)
        else:
            value = seen.value.reshape(-1)
    return replace(seen, value=np.asarray(value))


def scaled(steps: list[Step], scale: float) -> list[Step]:
    for step in steps:
        step.rows = [changed(row, scale - 1, "factor", 0) for row in step.rows]
    return steps


@st.composite
def edits(draw):
    """What is done to the target: ``(step, row, size, way)``."""
    way = st.sampled_from(["factor", "noise", "dtype", "shape", "remove", "repeat", "move"])
    edit = st.tuples(st.integers(0, STEPS - 1), st.integers(0, 80), st.sampled_from(SIZES), way)
    return draw(st.lists(edit, max_size=4))


def edited(steps: list[Step], everywhere: float, changes) -> list[Step]:
    for number, step in enumerate(steps):
        step.rows = [
            changed(row, everywhere, "noise", 100 * number + at) for at, row in enumerate(step.rows)
        ]
    for number, at, size, way in changes:
        rows = steps[number].rows
        row = rows[at % len(rows)]
        if way == "remove":
            del rows[at % len(rows)]
        elif way == "repeat":
            rows.insert(0, replace(row, call=row.call + 1))
        elif way == "move":
            del rows[at % len(rows)]
            rows.append(row)
        else:
            rows[at % len(rows)] = changed(row, size, way, at)
    return steps


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    everywhere=st.sampled_from(SIZES[:8]),
    changes=edits(),
    scale=st.sampled_from(SCALES),
    limit=st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 1.0, 1e30]),
    kind=st.sampled_from(["start", "resume"]),
    capture=st.sampled_from(["sketch", "digest", "values"]),
)
def test_the_result_is_that_of_a_look_at_each_row(everywhere, changes, scale, limit, kind, capture):
    align = Align(kind=kind, unmatched="allow" if limit > 0.1 else "fail")
    policy = Policy(align, rules=(Rule("*", rel_l2=limit), Rule("loss:*", rtol=1e-3)))
    run = Run(batches=2)
    reference = scaled(run.steps(STEPS), scale)
    target = edited(scaled(run.steps(STEPS), scale), everywhere, changes)
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            write_trace(Path(folder) / f"{at}.trace", steps, capture=capture)
            for at, steps in enumerate((reference, target))
        ]

        at_once = diff_runs(paths[0], paths[1:], policy)
        with (
            patch.object(step_diff, "settled_blocks", lambda pair: {}),
            patch.object(candidates, "surely_close", lambda pair, rows, _: rows < 0),
        ):
            row_by_row = diff_runs(paths[0], paths[1:], policy)

    assert as_json(at_once) == as_json(row_by_row)
