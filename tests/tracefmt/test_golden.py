"""Every reader of version 1 reads what earlier ones wrote; equal content has an equal digest."""

import importlib.util
from pathlib import Path

import pytest
from trace_story import read_step

from traceparity.tracefmt.records import NotObserved, Phase
from traceparity.tracefmt.recovery import CUT_OFF, finish_file

GOLDEN = Path(__file__).parent / "golden"
CONTENT_DIGEST = "0d586bdc4401a6c3ffa3f68d91e65181"
PHASE_DIGESTS = {
    Phase.STATE: "e8e4d220ea2a606e2b919e0cf9e12c60",
    Phase.DATA: "a0c51d6afc9f94fed43fb5ed16436946",
    Phase.FORWARD: "c8cfdda40dc9b7268c4580ab82fc8286",
}


def load_maker():
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = load_maker()
FILES = ["v1.0-complete.trace", "v1.0-cut.trace"]


@pytest.mark.parametrize("name", FILES)
def test_a_golden_file_is_read_in_full(opened, name):
    trace = opened(GOLDEN / name)

    assert trace.header == MAKER.HEADER
    assert [read_step(trace, step.number) for step in trace.steps] == list(MAKER.STEPS)
    assert trace.not_observed == [NotObserved(*MAKER.NOTE)]
    assert [len(step.chunks) for step in trace.steps] == [2, 1]


@pytest.mark.parametrize("name", FILES)
def test_the_digests_of_version_1_stay(opened, name):
    """A digest made by a later version must equal that of an earlier one."""
    trace = opened(GOLDEN / name)

    assert trace.content_digest == CONTENT_DIGEST
    assert {
        number: digest.hex()
        for number, digest in enumerate(trace.steps[0].phase_digests)
        if any(digest)
    } == PHASE_DIGESTS


def test_the_golden_file_with_shards_is_read_in_full(opened):
    trace = opened(GOLDEN / "v1.1-shards.trace")

    assert trace.header == MAKER.SHARDS_HEADER
    assert [read_step(trace, step.number) for step in trace.steps] == list(MAKER.SHARDS)


def test_a_file_of_version_1_0_has_no_groups_and_no_shards(opened):
    trace = opened(GOLDEN / FILES[0])

    assert trace.header.groups == ()
    assert not any(trace.columns(step.number).layout.any() for step in trace.steps)


def test_what_the_golden_files_say_of_their_end(opened):
    complete, cut = (opened(GOLDEN / name) for name in FILES)

    assert (complete.complete, complete.incomplete_reason) == (True, "")
    assert (cut.complete, cut.incomplete_reason) == (False, CUT_OFF)
    assert complete.unfinished is None
    assert cut.unfinished is not None
    assert cut.unfinished.number == 7
    assert read_step(cut, 7).seen == MAKER.STEPS[0].seen[4:]


def test_the_same_content_written_today_has_the_same_digest(tmp_path, opened):
    MAKER.make(tmp_path / "a.trace", close=True)

    assert opened(tmp_path / "a.trace").content_digest == CONTENT_DIGEST


def test_a_cut_golden_file_can_be_finished(tmp_path, opened):
    path = tmp_path / "a.trace"
    path.write_bytes((GOLDEN / "v1.0-cut.trace").read_bytes())

    assert finish_file(path, "killed")
    assert opened(path).content_digest == CONTENT_DIGEST
