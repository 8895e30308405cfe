"""A run is judged while it goes on, and ended where it parts from its reference."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from scripts import TRAIN
from synthetic import Run, write_trace

from traceparity.differ.policy import Policy
from traceparity.recorder.processes import descendants, runs, stop
from traceparity.tracefmt.errors import TraceparityError
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Header, Phase
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.writer import Writer
from traceparity.verify.live import Live
from traceparity.verify.live_diff import Against

ENDLESS = """
import os, sys, time
{begin}
from pathlib import Path
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Header, Kind, Phase
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.writer import Writer

writer = Writer(Path(sys.argv[1]), lambda: Header(process={{"pid": os.getpid()}}))
for number in range(10_000):
    rows = Rows()
    site = writer.site(Phase.LOSS, "loss", "value", "train.py:1")
    rows.plain(site, 0, 0, Kind.SCALAR, 0, scalar_bytes(number))
    writer.write(number, rows)
    time.sleep(0.02)
"""
"""A program that writes a step every 20 ms, as a training does, and needs no torch for it."""


class Noted:
    """A judge that notes what it is given, and objects to one step."""

    def __init__(self, objects_to=None, cannot=None):
        self.given = []
        self.objects_to = objects_to
        self.cannot = cannot

    def judge(self, trace, number, *, finished):
        self.given.append((number, finished))
        if number == self.cannot:
            raise TraceparityError("there is nothing to judge it by")
        return f"step {number} is wrong" if number == self.objects_to else None


@pytest.fixture
def write_loss(tmp_path):
    """Writes steps with a loss to ``a.trace``, one at a time."""
    writer = Writer(tmp_path / "a.trace", Header)
    writer.open()

    def write(step, value=0.5):
        rows = Rows()
        rows.plain(writer.site(Phase.LOSS, "loss", "value"), 0, 0, 1, 0, scalar_bytes(value))
        writer.write(step, rows)

    write.path, write.close = writer.path, writer.close
    yield write
    writer.abandon()


@pytest.fixture
def live():
    """Watchers, and what they have told."""
    made = []

    def make(path, *judges, **options):
        told = []
        options.setdefault("stop_after", None)
        makers = [lambda _, __, judge=judge: judge for judge in judges]
        made.append(Live(path, makers, tell=told.append, **options))
        return made[-1], told

    yield make
    for watcher in made:
        watcher.close()


def test_a_judge_is_given_each_step_when_it_is_there_and_when_it_is_finished(write_loss, live):
    judge = Noted()
    watcher, _ = live(write_loss.path, judge)
    for step in range(2):
        write_loss(step)
        watcher.look()
        watcher.look()

    assert judge.given == [(0, False), (0, True), (1, False)]
    write_loss(2)
    write_loss(3)
    watcher.look()
    assert judge.given[3:] == [(1, True), (2, True), (3, False)]
    write_loss.close()
    watcher.look()
    watcher.look()
    assert judge.given[6:] == [(3, True)]


def test_a_judge_that_has_found_something_or_cannot_judge_is_not_asked_again(write_loss, live):
    finds, cannot, goes_on = Noted(objects_to=1), Noted(cannot=0), Noted()
    watcher, told = live(write_loss.path, finds, cannot, goes_on)
    for step in range(4):
        write_loss(step)
        watcher.look()

    assert [(found.rank, found.step, found.text) for found in watcher.findings] == [
        (0, 1, "step 1 is wrong")
    ]
    assert finds.given[-1][0] == 1
    assert cannot.given == [(0, False)]
    assert goes_on.given[-1] == (3, False)
    assert told == [
        "there is nothing to judge it by; rank 0 is not judged while it runs",
        "step 1 is wrong",
    ]


def program(folder, begin=""):
    path = folder / "program.py"
    path.write_text(ENDLESS.format(begin=textwrap.dedent(begin)))
    return path


@pytest.fixture
def start():
    """Starts programs, which are gone when the test is over."""
    started = []

    def begin(*command):
        child = subprocess.Popen([str(word) for word in command])
        started.append(child)
        return child

    yield begin
    for child in started:
        child.kill()
        child.wait()


@pytest.mark.parametrize("after", [0, 20])
def test_a_program_is_stopped_after_as_many_more_steps_as_were_asked_for(
    tmp_path, start, live, after
):
    judge, path = Noted(objects_to=3), tmp_path / "a.trace"
    watcher, told = live(path, judge, stop_after=after)
    child = start(sys.executable, program(tmp_path), path)

    watcher.watch(child)

    assert child.returncode == -signal.SIGTERM
    assert watcher.stopped
    assert told == ["step 3 is wrong", "the program is stopped"]
    with open_trace(path) as trace:
        assert 3 + after <= trace.steps[-1].number < 3 + after + 60


def test_a_program_is_let_run_where_nobody_asked_to_stop_it(tmp_path, start, live):
    judge, path = Noted(objects_to=0), tmp_path / "a.trace"
    watcher, told = live(path, judge)
    child = start(sys.executable, program(tmp_path, "import threading\n"
                  "threading.Timer(1.0, os._exit, [7]).start()"), path)  # fmt: skip

    watcher.watch(child)

    watcher.finish()

    assert child.returncode == 7
    assert told == ["step 0 is wrong"]
    assert not watcher.stopped


def test_a_program_that_does_not_heed_the_request_is_killed_with_all_that_it_started(
    tmp_path, start, live
):
    """A shell does not pass the signal on; its child trains, and ignores it as well."""
    path = tmp_path / "a.trace"
    ignores = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)"
    watcher, _ = live(path, Noted(objects_to=0), stop_after=0)
    child = start("bash", "-c", f"{sys.executable} {program(tmp_path, ignores)} {path}; true")
    began, trees = time.monotonic(), []
    look = watcher.look
    watcher.look = lambda: trees.append(descendants(child.pid)) or look()

    watcher.watch(child, grace=0.5)

    assert time.monotonic() - began < 30
    assert child.returncode is not None
    assert trees[-1]
    assert not any(map(runs, trees[-1]))


def test_processes_that_the_program_did_not_start_are_left_alone(start):
    ours, others = (start(sys.executable, "-c", "import time; time.sleep(60)") for _ in range(2))

    stop(ours, [others.pid, os.getpid()], grace=5)

    assert ours.returncode == -signal.SIGTERM
    assert others.poll() is None


def test_each_rank_is_judged_by_its_own_reference(tmp_path):
    """Rank 1 parts at step 2; a rank that the reference lacks is not judged."""
    for folder in ("reference.trace", "run.trace"):
        (tmp_path / folder).mkdir()
        for rank in (0, 1):
            steps = Run(width=5 + rank).steps(4)
            if (folder, rank) == ("run.trace", 1):
                steps[2].change("state:rng.torch:digest", "context only")
                steps[2].change("data:loader[0]:batch[label]", steps[1].rows[2].value)
            write_trace(tmp_path / folder / f"rank{rank}.trace", steps)
    write_trace(tmp_path / "run.trace" / "rank2.trace", Run().steps(4))
    against, told = Against(tmp_path / "reference.trace", Policy()), []
    watcher = Live(tmp_path / "run.trace", [against.judge_of], stop_after=0, tell=told.append)

    watcher.look()
    watcher.close()
    against.close()

    assert [(found.rank, found.step) for found in watcher.findings] == [(1, 2)]
    assert "reference.trace at step 2, data:loader[0]:batch[label]" in told[0]


def test_a_file_that_moves_into_a_folder_is_followed_there(write_loss, tmp_path, live):
    """It does when a second process of the run comes along."""
    judge = Noted()
    watcher, told = live(write_loss.path, judge)
    write_loss(0)
    watcher.look()
    aside = tmp_path / "aside"
    aside.mkdir()
    write_loss.path.rename(aside / "rank0.trace")
    watcher.look()
    aside.rename(write_loss.path)
    write_loss(1)
    watcher.look()

    assert judge.given == [(0, False), (0, True), (1, False)]
    assert told == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory, shared_commands):
    """A folder with a training and an archived trace of it."""
    (shared_commands.folder / "train.py").write_text(TRAIN)
    shared_commands.record("archived", "train.py", "--steps", "6")
    return shared_commands


def against(commands, *words, name="run", options=()):
    first = ("tp-record", "--overwrite", "-o", f"{name}.trace", "--against", "archived.trace")
    return commands.run(*first, *options, "--", *words)


@pytest.mark.slow
def test_a_run_that_agrees_with_its_reference_ends_as_it_would_have(trained):
    plain = trained.run(sys.executable, "train.py", "--steps", "6")

    done = against(trained, "train.py", "--steps", "6")

    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert done.stderr.startswith("PASS  ")


@pytest.mark.slow
def test_a_run_that_parts_is_ended_with_a_report_and_a_status_of_its_own(trained):
    """It would have gone on for a long time; `bash` is what was started."""
    command = f"{sys.executable} train.py --steps 100000 --lr 0.2; true"

    done = against(trained, "bash", "-c", command)

    assert done.returncode == 121
    lines = done.stderr.splitlines()
    assert lines[0] == (
        "traceparity: the run parts from archived.trace at step 0,"
        " state:optimizer[0] group[0]:lr (hyperparameter)"
    )
    assert lines[1] == "traceparity: the program is stopped"
    assert lines[2].startswith("FAIL  The runs part at step 0")
    again = trained.diff("archived.trace", "run.trace")
    assert again["first_divergence"]["field"] == "lr"


@pytest.mark.slow
def test_a_run_that_ends_early_or_cannot_be_judged_does_not_pass(trained):
    """One process serves both: it makes fewer steps, and its inside is recorded by half."""
    shorter = against(trained, "train.py", "--steps", "4")
    assert shorter.returncode == 121
    assert "only one run has that step" in shorter.stderr

    half = against(trained, "train.py", "--steps", "6", options=("--phases", "forward"))
    assert half.returncode == 122
    assert half.stderr.startswith("ABSTAIN")


def test_what_cannot_begin_is_said_before_the_program_starts(commands):
    write_trace(commands.folder / "a.trace", Run().steps(2))
    for options, said in (
        (("--against", "none.trace"), "none.trace: no such file"),
        (("--against", "a.trace", "--overwrite", "-o", "a.trace"), "both the reference and"),
        (("--stop-after", "3"), "go with --against"),
    ):
        done = commands.run("tp-record", *options, "--", "true")

        assert (done.returncode, done.stdout) == (125, "")
        assert said in done.stderr
    assert Path(commands.folder / "a.trace").stat().st_size > 1000
