"""Pairs of real trainings: harmless differences pass, planted ones are named at their place.

Each run is a fork of this process, which has imported torch once; the recorder attaches in the fork
exactly as `tp-record` makes it attach.
"""

import inspect
import json
import os
import traceback
from pathlib import Path

import pytest
import trainings

from traceparity.invariants.laws.pack import LAWS
from traceparity.invariants.laws.result import judge_by_laws
from traceparity.tracefmt.reader import open_trace


def record(train: object, variant: str, folder: Path, out: Path | None) -> None:
    """Run a training in a forked child, recorded to ``out`` unless that is None."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, (folder / "error.txt").read_text()
        return
    status = 1
    try:
        arguments = [variant]
        if len(inspect.signature(train).parameters) > 1:
            arguments.append(str(folder))
        if out is not None:
            order = {
                "out": str(out),
                "settings": {},
                "session": "s",
                "rank": None,
                "verbose": False,
            }
            os.environ["TRACEPARITY_RECORD"] = json.dumps(order)
            from traceparity.recorder import attach, session

            attach.attach()
            train(*arguments)
            session.current().finish()
        else:
            train(*arguments)
        status = 0
    except BaseException:  # noqa: BLE001 - the parent raises it again
        (folder / "error.txt").write_text(traceback.format_exc())
    finally:
        os._exit(status)


@pytest.mark.parametrize("pair", trainings.PAIRS, ids=lambda pair: pair.name)
def test_a_pair_of_trainings(pair, tmp_path, commands):
    if pair.prepare:
        record(pair.train, pair.prepare, tmp_path, None)
    reference, target = tmp_path / "reference.trace", tmp_path / "target.trace"
    record(pair.train, pair.reference, tmp_path, reference)
    record(pair.train, pair.target, tmp_path, target)

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
