"""``tp-show`` as a user meets it."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from trace_story import Seen, Step, sample, scalar, write, write_step

from traceparity.cli.exits import INTERRUPTS
from traceparity.cli.show import main
from traceparity.tracefmt import framing
from traceparity.tracefmt.records import Flag, Header, Phase
from traceparity.tracefmt.source import open_file
from traceparity.tracefmt.writer import Writer

ROOT = Path(__file__).parents[2]
HEADER = Header(
    program="train.py",
    arguments=("--lr", "3e-4"),
    versions={"torch": "2.12.0", "python": "3.11.7"},
    environment={"determinism": {"threads": 2}, "devices": ["cpu"], "note": ""},
)
LR = [
    Step(
        number,
        (
            scalar(0.1 / (number + 1), "lr", component="optimizer[0] group[0]", flags=4),
            Seen(component="blocks.0.attn", call=number % 2, flags=int(Flag.CONTEXT)),
        ),
    )
    for number in range(3)
]


@pytest.fixture
def show(monkeypatch, capsys):
    """Runs tp-show in this process; returns exit status, stdout and stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tp-show", *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as stop:
            status = stop.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def trace(tmp_path):
    return write(tmp_path / "a.trace", sample(), header=HEADER)


def damage(path, kind, number=0):
    """Flip a bit at the end of a record."""
    with contextlib.closing(open_file(path)) as source:
        heads = [head for head in framing.scan(source, 16) if head.kind == kind]
    data = bytearray(path.read_bytes())
    data[heads[number].end - 1] ^= 1
    path.write_bytes(data)
    return heads[number]


def test_the_overview_says_what_ran_and_which_steps_there_are(show, trace):
    status, out, _ = show(trace)

    assert status == 0
    assert out.startswith(f"{trace}  complete\n")
    for words in ("train.py --lr 3e-4", "torch 2.12.0", "determinism.threads 2", "3 (0 to 2)"):
        assert words in out
    assert out.rstrip().endswith("tail")
    assert "note" not in out
    assert max(map(len, out.splitlines()[1:])) <= 80


def test_the_overview_as_json(show, trace):
    status, out, _ = show(trace, "--format", "json")
    told = json.loads(out)["ranks"][0]

    assert status == 0
    assert told["rank"] == 0
    assert told["complete"] is True
    assert told["header"]["program"] == "train.py"
    assert told["format_version"] == "1.1"
    assert [step["number"] for step in told["steps"]] == [0, 1, 2]
    assert told["steps"][2]["counts"]["forward"] == 3
    assert told["steps"][2]["tail"] is True
    assert len(told["content_digest"]) == 32


def test_many_steps_are_listed_only_when_asked_for(show, tmp_path):
    path = write(tmp_path / "a.trace", [Step(number, (Seen(),)) for number in range(50)])

    _, few, _ = show(path)
    _, all_of_them, _ = show(path, "--steps")

    assert "30 more; --steps" in few
    assert len(few.splitlines()) < 40
    assert len(all_of_them.splitlines()) > 55


def test_sites_are_listed_with_their_source_lines(show, trace):
    _, out, _ = show(trace, "--sites")

    assert "forward\n  layer  output[0]" in out
    assert "train.py:1" in out


@pytest.mark.parametrize(
    ("glob", "count"),
    [("block.?", 3), ("forward:block.*:*", 3), ("*:output[0]", 4), ("grad", 1), ("layer", 2)],
)
def test_globs_narrow_the_sites(show, trace, glob, count):
    """Brackets are part of names; a glob without a colon is over components and fields."""
    _, out, _ = show(trace, "--sites", "--site", glob, "--format", "json")

    assert len(json.loads(out)["ranks"][0]["sites"]) == count


def test_a_step_is_shown_by_phase_in_order(show, trace):
    status, out, _ = show(trace, "--step", "1")

    assert status == 0
    assert out.startswith("step 1  8 observations, 2 micro-batches\n")
    heads = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert heads[1:] == [
        "data, micro-batch 0", "state", "forward, micro-batch 0", "forward, micro-batch 1",
        "gradient", "optimizer",
    ]  # fmt: skip
    assert "samples 3, 1, four, None" in out
    assert "(call 2)" in out
    assert "9 not finite" in out
    assert "(context)" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_step_as_json(show, trace):
    _, out, _ = show(trace, "--step", "2", "--format", "json")
    (step,) = json.loads(out)["ranks"][0]["steps"]
    by_field = {seen["field"]: seen for seen in step["observations"]}

    assert step["number"] == 2
    assert by_field["sample_ids"]["sample_ids"] == [3, 1, "four", None]
    assert by_field["digest"]["flags"] == ["context"]
    assert by_field["lr"]["value"] == {"lr": 0.1, "betas": [0.9, 0.999]}
    assert by_field["grad"]["dtype"] == "bfloat16"
    assert by_field["grad"]["min"] is None
    assert len(by_field["grad"]["digest"]) == 32


def test_one_site_over_all_steps(show, tmp_path):
    path = write(tmp_path / "a.trace", LR)

    _, out, _ = show(path, "--site", "*group[0]:lr")

    lines = out.splitlines()
    assert lines[0] == "optimizer:optimizer[0] group[0]:lr  train.py:1"
    assert [line.split() for line in lines[1:4]] == [
        ["step", "0", "0.1"], ["step", "1", "0.05"], ["step", "2", "0.0333333333"],
    ]  # fmt: skip
    assert "stayed as it was" in lines[4]


def test_several_sites_over_all_steps(show, tmp_path):
    path = write(tmp_path / "a.trace", LR)

    _, out, _ = show(path, "--site", "*")
    _, as_json, _ = show(path, "--site", "*", "--format", "json")

    assert [line for line in out.splitlines() if line.startswith("step")] == [
        f"step {number}  2 observations" for number in range(3)
    ]
    assert len(json.loads(as_json)["ranks"][0]["steps"]) == 3


def test_a_step_and_a_site_together(show, tmp_path):
    path = write(tmp_path / "a.trace", LR)

    _, out, _ = show(path, "--step", "0", "--step", "2", "--site", "lr")

    assert "0.1" in out
    assert "0.0333333333" in out
    assert "0.05" not in out
    assert "attn" not in out


@pytest.fixture
def run_of_three(tmp_path):
    folder = tmp_path / "run.trace"
    folder.mkdir()
    for rank in range(3):
        write(folder / f"rank{rank}.trace", sample(rank + 1), header=HEADER)
    return folder


def test_a_run_of_several_processes(show, run_of_three):
    _, table, _ = show(run_of_three)
    _, one, _ = show(run_of_three, "--rank", "1")
    _, every, _ = show(run_of_three, "--sites")
    _, as_json, _ = show(run_of_three, "--format", "json")

    assert [line.split()[:2] for line in table.splitlines()[1:4]] == [
        ["0", "1"], ["1", "2"], ["2", "3"],
    ]  # fmt: skip
    assert "2 (0 to 1)" in one
    assert every.count("rank ") == 3
    assert [told["rank"] for told in json.loads(as_json)["ranks"]] == [0, 1, 2]


def test_a_sound_file_passes_the_check(show, trace, run_of_three):
    status, out, _ = show(trace, "--check")
    assert status == 0
    assert out.startswith(f"{trace}  sound\n")
    assert "3 can be read in full" in out

    assert show(run_of_three, "--check")[0] == 0


def test_the_check_says_what_is_lost_and_where(show, trace):
    head = damage(trace, framing.RecordKind.CHUNK, 1)

    status, out, _ = show(trace, "--check")
    assert status == 1
    assert "damaged" in out.splitlines()[0]
    assert "2 can be read in full" in out
    assert "lost steps   1" in out
    assert f"{head.end - head.offset:,} bytes at {head.offset:,}" in out

    status, out, _ = show(trace, "--check", "--format", "json")
    told = json.loads(out)
    assert status == 1
    assert told["sound"] is False
    assert told["ranks"][0]["lost_steps"] == [1]
    assert told["ranks"][0]["damage"][0]["offset"] == head.offset


def test_the_check_of_a_cut_off_file(show, tmp_path):
    writer = Writer(tmp_path / "a.trace", lambda: HEADER)
    write_step(writer, sample()[0])
    write_step(writer, sample()[1], last=False)
    writer.abandon()

    status, out, _ = show(tmp_path / "a.trace", "--check")
    assert status == 1
    assert "incomplete" in out.splitlines()[0]
    assert "step 1, cut off inside" in out

    status, out, _ = show(tmp_path / "a.trace")
    assert status == 0
    assert "step 1 was being written" in out
    status, out, _ = show(tmp_path / "a.trace", "--step", "1")
    assert "unfinished" in out


def test_the_check_of_one_bad_rank_fails_the_run(show, run_of_three):
    damage(run_of_three / "rank2.trace", framing.RecordKind.FOOTER)

    assert show(run_of_three, "--check")[0] == 1
    assert show(run_of_three, "--check", "--rank", "1")[0] == 0


def test_an_incomplete_trace_says_why_in_the_overview(show, trace):
    damage(trace, framing.RecordKind.FOOTER)

    status, out, _ = show(trace)

    assert status == 0
    assert "incomplete" in out.splitlines()[0]
    assert "the index was rebuilt" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.trace"], "gone.trace: no such file"),
        (["text.trace"], "text.trace: not a trace"),
        (["empty.trace"], "empty.trace: the file is empty"),
        (["future.trace"], "upgrade traceparity"),
        (["cut.trace"], "cut.trace: the file ends inside a record"),
        (["folder"], "folder: the folder holds no rank<N>.trace"),
        (["a.trace", "--step", "9"], "there is no step 9; it has 0 to 2"),
        (["a.trace", "--site", "nothing.like.it"], "no site matches nothing.like.it"),
        (["a.trace", "--rank", "4"], "there is no rank 4; it has 0"),
        (["a.trace", "--check", "--sites"], "--check"),
        (["a.trace", "--step", "1", "--sites"], "choose one"),
        (["a.trace", "--step", "x"], "not a valid integer"),
        (["a.trace", "--nonsense"], "No such option"),
        ([], "Missing argument"),
        (["gone.trace", "--check"], "gone.trace: no such file"),
        (["text.trace", "--check"], "text.trace: not a trace"),
    ],
    ids=map(str, itertools.count()),
)
def test_an_error_is_one_clear_line_and_exit_status_2(
    show, trace, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    Path("text.trace").write_text("hello, this is no trace")
    Path("empty.trace").touch()
    Path("future.trace").write_bytes(framing.prefix_bytes((2, 0)))
    Path("cut.trace").write_bytes(trace.read_bytes()[:50])
    Path("folder").mkdir()

    status, out, err = show(*arguments)

    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_damaged_step_is_named_and_the_others_are_shown(show, trace):
    damage(trace, framing.RecordKind.CHUNK, 1)

    assert show(trace, "--step", "0")[0] == 0
    status, _, err = show(trace, "--step", "1")
    assert status == 2
    assert f"{trace}: step 1: the record at byte" in err


def test_names_cannot_drive_the_terminal(show, tmp_path):
    """A trace may come from anybody."""
    evil = "\x1b[2J\x07\u202eevil\r"
    step = Step(0, (Seen(component=evil), scalar([evil], "sample_ids", kind=2), scalar(evil)))
    path = write(tmp_path / "a.trace", [step], header=Header(program=evil, versions={evil: evil}))

    for arguments in ([], ["--sites"], ["--step", "0"], ["--site", "*"], ["--check"]):
        _, out, _ = show(path, *arguments)

        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(out)


def test_values_that_json_cannot_say_are_null_or_text(show, tmp_path):
    step = Step(0, (scalar([float("nan"), float("-inf"), b"\0\1"]),))

    _, out, _ = show(write(tmp_path / "a.trace", [step]), "--step", "0", "--format", "json")

    assert json.loads(out)["ranks"][0]["steps"][0]["observations"][0]["value"] == [
        None, "-inf", "0001",
    ]  # fmt: skip


def test_an_impossible_shape_is_shown_without_its_value(show, tmp_path):
    step = Step(0, (Seen(phase=Phase.LOSS, shape=(1 << 32, 1 << 32), value=b""),))

    status, out, _ = show(write(tmp_path / "a.trace", [step]), "--step", "0")

    assert status == 0
    assert "4294967296x4294967296" in out


def run_command(*arguments, **options):
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return subprocess.run(
        [sys.executable, "-m", "traceparity.cli.show", *map(str, arguments)],
        capture_output=True, check=False, timeout=60,
        env=environment | {"PYTHONPATH": str(ROOT)} | options,
    )  # fmt: skip


def test_a_terminal_without_the_letters_is_no_reason_to_fail(tmp_path):
    path = write(tmp_path / "a.trace", [Step(0, (Seen(component="层"),))])

    done = run_command(path, "--sites", PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert b"\\u5c42" in done.stdout


def test_colour_is_for_terminals_that_want_it(trace):
    if sys.platform == "win32":
        pytest.skip("needs a pseudo-terminal")
    import pty

    shown = {}
    for setting in ({}, {"NO_COLOR": "1"}):
        ours, theirs = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        subprocess.run(
            [sys.executable, "-m", "traceparity.cli.show", str(trace), "--check"],
            stdout=theirs, check=True, timeout=60,
            env=environment | {"PYTHONPATH": str(ROOT)} | setting,
        )  # fmt: skip
        os.close(theirs)
        shown[len(setting)] = os.read(ours, 100_000)
        os.close(ours)

    assert b"\x1b[" in shown[0]
    assert b"\x1b[" not in shown[1]
    assert b"\x1b[" not in run_command(trace, "--check").stdout


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    """As `tp-show a.trace --site "*" | head -1`."""
    path = write(tmp_path / "a.trace", [Step(number, (Seen(),) * 300) for number in range(40)])
    process = subprocess.Popen(
        [sys.executable, "-m", "traceparity.cli.show", str(path), "--site", "*"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    process.wait(60)

    assert said == b""


def test_help_names_every_option_and_the_exit_status(show):
    status, out, _ = show("--help")

    assert status == 0
    for words in ("--steps", "--sites", "--step N", "--site GLOB", "--check", "--rank N"):
        assert words in out
    assert "Exit status" in out


@pytest.fixture
def handlers():
    """An interrupted command hears no more signals until its process ends; this one goes on."""
    before = {number: signal.getsignal(number) for number in INTERRUPTS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, ""),
        (ZeroDivisionError("oops"), 2, "internal error, please report it"),
    ],
    ids=["interrupt", "fault"],
)
def test_no_exit_but_the_check_means_damage(show, trace, monkeypatch, error, status, message):
    """Python's own exit status for a crash is 1, which would say that the file is damaged."""

    def fail(*_):
        raise error

    monkeypatch.setattr("traceparity.differ.show.open_ranks", fail)
    monkeypatch.delenv("TRACEPARITY_DEBUG", raising=False)

    told = show(trace)

    assert told[0] == status
    assert message in told[2]
    assert "Traceback" not in told[2]
