"""Traces that lie elsewhere: what is fetched of them, and what is said where that fails."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from far_apart import GIGABYTE, spread, write
from synthetic import Run, write_trace

from traceparity.differ.check import check_run
from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Policy
from traceparity.differ.report_json import as_json
from traceparity.differ.result import Outcome
from traceparity.tracefmt import remote
from traceparity.tracefmt.errors import TraceError, TraceNotFoundError
from traceparity.tracefmt.location import RemoteLocation, location
from traceparity.tracefmt.reader import open_run, open_trace
from traceparity.tracefmt.verification import verify

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")


def diff(reference: str, target: str):
    return diff_runs(location(reference), [location(target)], Policy())


def small(path: Path, *, step: int | None = None) -> Path:
    """A trace of 5 steps, with another loss in one of them."""
    steps = Run().steps(5)
    if step is not None:
        steps[step].change("forward:head:output[0]", Run().array("another"))
    return write_trace(path, steps)


def command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", f"traceparity.cli.{name}", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)


def test_of_two_gigabyte_traces_the_index_and_the_unequal_steps_are_fetched(server):
    one = spread(write(server.folder / "a.trace"))
    other = spread(write(server.folder / "b.trace", other_steps=(17, 30)))
    assert one.stat().st_size > GIGABYTE

    result = diff(server.url("a.trace"), server.url("b.trace"))

    with open_trace(other) as trace:
        chunk = trace.steps[17].chunks[0][1]
    assert result.outcome is Outcome.FAIL
    assert (result.first.step, result.first.component) == (17, "blocks.700")
    assert result.compared.skipped_equal == 38 * 800
    # Two steps on both sides; the index, the header and the tables.
    assert 4 * chunk < server.sent < 4 * chunk + 700_000
    assert "by the index alone" in " ".join(result.notes)


def test_of_two_equal_traces_no_step_is_fetched(server):
    for name in ("a.trace", "b.trace"):
        spread(write(server.folder / name))

    result = diff(server.url("a.trace"), server.url("b.trace"))

    assert result.outcome is Outcome.PASS
    assert server.sent < 600_000
    assert len(server.asked) < 20


def test_a_remote_trace_is_judged_as_the_file_is(server):
    one = small(server.folder / "a.trace")
    other = small(server.folder / "b.trace", step=3)

    far = json.loads(as_json(diff(server.url("a.trace"), server.url("b.trace"))))
    near = json.loads(as_json(diff(str(one), str(other))))

    assert far["reference"].pop("path") == server.url("a.trace")
    assert near["reference"].pop("path") == str(one)
    for name in ("outcome", "reason", "reference", "first_divergence", "compared"):
        assert far[name] == near[name]
    assert verify(server.url("a.trace")).sound
    assert check_run([location(server.url("a.trace"))], Policy()).outcome is Outcome.PASS


def test_a_damaged_step_of_a_remote_trace_is_found_by_the_full_check(server):
    path = small(server.folder / "a.trace")
    with open_trace(path) as trace:
        offset, length = trace.steps[2].chunks[0]
    data = bytearray(path.read_bytes())
    data[offset + length - 1] ^= 1
    path.write_bytes(data)

    assert verify(server.url("a.trace")).lost == (2,)


def test_a_trace_without_an_index_is_read_in_full(server):
    steps = Run().steps(5)
    path = write_trace(server.folder / "a.trace", steps)
    path.write_bytes(path.read_bytes()[:-200])

    with open_trace(server.url("a.trace")) as trace:
        assert len(trace.steps) == 5
        assert not trace.complete


def test_a_folder_of_ranks_is_found_where_it_can_be_listed(server):
    folder = server.folder / "run.trace"
    folder.mkdir()
    for rank in range(3):
        write_trace(folder / f"rank{rank}.trace", Run().steps(2), rank=rank, world_size=3)

    result = diff(server.url("run.trace/"), str(folder))

    assert result.outcome is Outcome.PASS
    assert result.compared.ranks == 3


def test_redirects_are_followed(server):
    small(server.folder / "a.trace")

    assert diff(server.url("a.trace", "moved"), server.url("a.trace")).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("manners", "said"),
    [
        ("whole", "the server gives no parts of files"),
        ("liar", "the server gives no parts of files"),
        ("cut", "Response payload is not completed"),
        ("private", "the server answered 403 Forbidden"),
        ("broken", "the server answered 500"),
        ("loop", "the server redirects without end"),
        ("silent", "the server was silent for 0.5 s; try again, or download"),
    ],
)
def test_what_a_server_does_wrong_is_one_line(server, manners, said, monkeypatch):
    if manners == "silent":
        monkeypatch.setattr(remote, "SILENCE", 0.5)
    spread(write(server.folder / "a.trace"), size=20_000_000)

    with pytest.raises(TraceError, match=said) as caught:
        diff(server.url("a.trace", manners), server.url("a.trace"))

    assert str(caught.value).startswith(f"{server.url('a.trace', manners)}: ")
    assert "\n" not in str(caught.value)


def test_a_remote_file_that_is_none_is_not_found(server):
    with pytest.raises(TraceNotFoundError, match=r"gone\.trace: no such file"):
        open_trace(server.url("gone.trace"))


def test_an_empty_remote_file_is_no_trace(server):
    (server.folder / "a.trace").touch()

    with pytest.raises(TraceError, match="the file is empty"):
        open_trace(server.url("a.trace"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nothing://host/a.trace", "Protocol not known: nothing"),
        ("http://127.0.0.1:9/a.trace", "Cannot connect"),
        ("zip://a.trace::/nowhere.zip", "no such file"),
    ],
)
def test_what_cannot_be_reached_is_one_line(url, said):
    with pytest.raises(TraceError, match=said) as caught:
        open_run(url)

    assert "\n" not in str(caught.value)


def test_traces_in_archives_are_read(tmp_path, server):
    path = small(tmp_path / "a.trace")
    with zipfile.ZipFile(server.folder / "runs.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.trace", "run.trace/rank0.trace", "run.trace/rank1.trace"):
            archive.write(path, name)

    local = f"zip://a.trace::{server.folder / 'runs.zip'}"
    far = f"zip://a.trace::{server.url('runs.zip')}"
    folder = f"zip://run.trace::{server.url('runs.zip')}"

    assert diff(local, far).outcome is Outcome.PASS
    with pytest.raises(TraceNotFoundError):
        open_trace(local.replace("a.trace", "b.trace"))
    run = open_run(folder)
    assert sorted(run) == [0, 1]
    for trace in run.values():
        trace.close()


def test_a_file_url_is_a_path(tmp_path):
    path = small(tmp_path / "a b.trace")

    assert location(path.as_uri()) == path
    assert location("a.trace") == Path("a.trace")
    assert location("C:/a.trace") == Path("C:/a.trace")


def test_secrets_in_a_url_are_not_shown(server):
    small(server.folder / "a.trace")
    plain = server.url("a.trace")
    secret = plain.replace("http://", "http://user:pass@") + "?token=hidden"

    assert str(RemoteLocation(secret)) == f"{plain}?..."
    with open_trace(secret) as trace:
        assert str(trace.path) == f"{plain}?..."
    with pytest.raises(TraceError) as caught:
        open_trace(secret.replace("/files/", "/private/"))
    assert "hidden" not in str(caught.value)
    assert "pass" not in str(caught.value)


def test_the_commands_take_urls(server):
    small(server.folder / "a.trace")
    small(server.folder / "b.trace", step=3)
    a, b = server.url("a.trace"), server.url("b.trace")

    failed = command("diff", a, b)
    shown = command("show", a)
    gone = command("check", server.url("gone.trace"))

    assert (failed.returncode, shown.returncode, gone.returncode) == (1, 0, 2)
    assert "head" in failed.stdout
    assert f"tp-show {b} --step 3" in failed.stdout
    assert a in shown.stdout
    assert gone.stderr == f"tp-check: {server.url('gone.trace')}: no such file\n"


def test_without_fsspec_one_line_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['fsspec'] = None; sys.argv = ['tp-diff', 's3://b/a.trace', 'x'];"
        "from traceparity.cli.diff import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert done.returncode == 2
    assert done.stderr == (
        "tp-diff: s3://b/a.trace: reading a trace from elsewhere needs fsspec: "
        "pip install 'traceparity[remote]'\n"
    )


def test_files_of_this_machine_need_no_fsspec(tmp_path):
    path = small(tmp_path / "a.trace")
    code = (
        "import sys; from pathlib import Path; from traceparity.differ.diff import diff_runs;"
        "from traceparity.differ.policy import Policy; path = Path(sys.argv[1]);"
        "print(diff_runs(path, [path], Policy()).outcome, 'fsspec' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )

    assert done.stdout == "Outcome.PASS False\n"
