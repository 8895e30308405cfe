"""Pairs of real trainings: harmless differences pass, planted ones are named at their place."""

import inspect
from pathlib import Path

import forked
import pytest
import side_trainings
import trainings

from traceparity.invariants.laws.pack import LAWS
from traceparity.invariants.laws.result import judge_by_laws
from traceparity.tracefmt.reader import open_trace


def record(pair: trainings.Pair, variant: str, folder: Path, out: Path | None) -> None:
    arguments = [variant]
    if len(inspect.signature(pair.train).parameters) > 1:
        arguments.append(str(folder))
    forked.record(pair.train, arguments, out, folder, **pair.settings)


PAIRS = (*trainings.PAIRS, *side_trainings.PAIRS)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_pair_of_trainings(pair, tmp_path, commands):
    if pair.prepare:
        record(pair, pair.prepare, tmp_path, None)
    reference, target = tmp_path / "reference.trace", tmp_path / "target.trace"
    record(pair, pair.reference, tmp_path, reference)
    record(pair, pair.target, tmp_path, target)

    result = commands.diff(*pair.options, reference, target)

    found = result["first_divergence"]
    place = found and f"{found['phase']}:{found['component']}:{found['field']}"
    assert result["outcome"] == pair.outcome, (result["reason"], place)
    if pair.outcome == "PASS":
        for trace in (reference, target):
            with open_trace(trace) as opened:
                assert judge_by_laws([{0: opened}], LAWS).findings == ()
    if pair.outcome == "FAIL":
        assert any(site in place for site in pair.sites), place
        assert pair.step is None or found["step"] == pair.step, place
