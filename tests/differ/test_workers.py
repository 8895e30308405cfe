"""Ranks compared in other processes come to what they come to one after the other."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import Run, write_trace

from traceparity.differ import workers
from traceparity.differ.diff import diff_runs
from traceparity.differ.errors import WorkerError
from traceparity.differ.policy import Policy
from traceparity.differ.report_json import as_json
from traceparity.differ.workers import Workers
from traceparity.tracefmt.errors import TraceError

RANKS = 66  # more than are held open


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of many ranks; the same again; one of which three ranks differ, one is cut off."""
    folder = tmp_path_factory.mktemp("ranks")
    for name in ("reference", "same", "other"):
        (folder / f"{name}.trace").mkdir()
    reference = folder / "reference.trace"
    steps = Run().steps(2)
    for rank in range(RANKS):
        where = {"rank": rank, "world_size": RANKS}
        file = write_trace(reference / f"rank{rank}.trace", steps, **where)
        for name in ("same", "other"):
            shutil.copy(file, folder / f"{name}.trace" / file.name)
    for rank, step in ((5, 1), (40, 0), (41, 0)):
        changed = Run().steps(2)
        changed[step].change("forward:head:output[0]", Run().array("another", rank))
        where = {"rank": rank, "world_size": RANKS}
        file = folder / f"other.trace/rank{rank}.trace"
        file.unlink()
        write_trace(file, changed, **where)
    cut = folder / "other.trace" / "rank60.trace"
    cut.write_bytes(cut.read_bytes()[:-400])
    return folder


def result(folder: Path, target: str, where: Workers) -> dict:
    paths = folder / "reference.trace", folder / f"{target}.trace"
    return json.loads(as_json(diff_runs(paths[0], [paths[1]], Policy(), workers=where)))


@pytest.mark.parametrize("target", ["same", "other"])
def test_a_pool_gives_the_serial_result(folder, target):
    serial = result(folder, target, Workers(1))

    assert result(folder, target, Workers(2)) == serial
    assert serial["outcome"] == ("PASS" if target == "same" else "FAIL")
    assert serial["compared"]["ranks"] == RANKS
    if target == "other":
        assert (serial["first_divergence"]["step"], serial["first_divergence"]["rank"]) == (0, 40)


def test_a_small_run_starts_no_process(folder, monkeypatch):
    monkeypatch.setattr(workers, "_in_pool", lambda *_: pytest.fail("a process was started"))

    assert result(folder, "same", Workers(None))["outcome"] == "PASS"


def test_a_large_run_uses_the_cores(folder, monkeypatch):
    started = []
    monkeypatch.setattr(workers, "PAYS", 1)
    monkeypatch.setattr(workers, "_cores", lambda: 3)
    monkeypatch.setattr(workers, "_in_pool", lambda jobs, count: started.append(count) or iter(()))

    with pytest.raises(ValueError, match="shorter"):
        result(folder, "same", Workers(None))

    assert started == [3]


def test_a_damaged_trace_is_told_as_in_one_process(folder, tmp_path):
    broken = tmp_path / "broken.trace"
    shutil.copytree(folder / "same.trace", broken)
    file = broken / "rank7.trace"
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)

    told = []
    for where in (Workers(1), Workers(2)):
        with pytest.raises((TraceError, WorkerError)) as caught:
            diff_runs(folder / "reference.trace", [broken], Policy(), workers=where)
        told.append(str(caught.value))

    assert told[0] == told[1]
    assert told[0].startswith(f"{file}: ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="resource limits are those of POSIX")
def test_many_ranks_need_few_open_files(folder):
    code = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        "sys.argv = ['tp-diff', *sys.argv[1:]];"
        "runpy.run_module('traceparity.cli.diff', run_name='__main__')"
    )
    names = [str(folder / f"{name}.trace") for name in ("reference", "same")]

    done = subprocess.run(
        [sys.executable, "-c", code, *names], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_takes_the_number_of_processes(folder):
    names = [str(folder / f"{name}.trace") for name in ("reference", "other")]
    command = [sys.executable, "-m", "traceparity.cli.diff", "--jobs", "2", *names]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (1, "")
    assert "rank 40" in done.stdout


@pytest.mark.slow
def test_a_dask_cluster_gives_the_serial_result(folder):
    pytest.importorskip("distributed")
    code = (
        "import sys; from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(2, threads_per_worker=2, dashboard_address=None) as cluster:\n"
        "        print(cluster.scheduler_address, flush=True); sys.stdin.read()\n"
    )
    script = folder / "cluster.py"
    script.write_text(code)
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        address = cluster.stdout.readline().strip()
        results = [result(folder, name, Workers(scheduler=address)) for name in ("same", "other")]

    assert results == [result(folder, name, Workers(1)) for name in ("same", "other")]


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_one_line(folder):
    pytest.importorskip("distributed")
    names = [str(folder / f"{name}.trace") for name in ("reference", "same")]
    command = [sys.executable, "-m", "traceparity.cli.diff", "--scheduler", "tcp://127.0.0.1:9"]

    done = subprocess.run([*command, *names], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("tp-diff: no Dask scheduler answers at tcp://127.0.0.1:9")
    assert done.stderr.count("\n") == 1
