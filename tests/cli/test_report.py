"""``--report``: results logged through wandb, mlflow and tensorboard, offline and for real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from traceparity.tracefmt.records import Header, Kind, Phase
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.writer import Writer

RESULT = "traceparity-result.json"


def run(
    folder: Path, command: str, *arguments: str, first: str = "pass", **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command in a folder of its own; ``first`` is run before it in its process."""
    program = f"import sys; {first}; from traceparity.cli.{command} import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "WANDB_MODE": "offline", **environment},
        timeout=300,
        check=False,
    )


@pytest.fixture
def folder(tmp_path):
    for name, losses in (("a", [1.0, 2.0]), ("b", [1.0, 2.5])):
        header = Header(program="train.py", capture={"digest": "xxh3-128"})
        writer = Writer(tmp_path / f"{name}.trace", lambda header=header: header)
        site = writer.site(Phase.LOSS, "loss", "value", "train.py:3")
        for step, loss in enumerate(losses):
            rows = Rows()
            rows.plain(site, 0, 0, Kind.SCALAR, 0, scalar_bytes(loss))
            writer.write(step, rows)
        writer.close(complete=True, reason="")
    return tmp_path


def test_tensorboard_gets_scalars_texts_and_the_result_beside_them(folder):
    """The report on stdout and the exit status are those of the verdict."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    plain = run(folder, "diff", "a.trace", "b.trace")
    done = run(folder, "diff", "a.trace", "b.trace", "--report", "tensorboard=logs")

    assert (done.returncode, done.stdout, done.stderr) == (1, plain.stdout, "")
    (events,) = (folder / "logs" / "tp-diff").glob("events.out.tfevents.*")
    values = {
        value.tag: value
        for event in EventFileLoader(str(events)).Load()
        for value in event.summary.value
    }
    assert values["tp-diff/compared.steps"].tensor.float_val == [2.0]
    assert values["tp-diff/passed"].tensor.float_val == [0.0]
    said = {tag: value.tensor.string_val for tag, value in values.items()}
    assert said["tp-diff/outcome"] == [b"FAIL"]
    assert said["tp-diff/first_finding"] == [b"step 1, loss:loss:value (train.py:3)"]
    assert '"outcome": "FAIL"' in (folder / "logs" / "tp-diff" / RESULT).read_text()


@pytest.mark.slow
def test_mlflow_gets_tags_metrics_and_the_result_as_an_artifact(folder):
    store = {"MLFLOW_TRACKING_URI": "file:./mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}

    done = run(folder, "check", "a.trace", "--report", "mlflow=judged", **store)

    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("ABSTAIN")
    (logged,) = (folder / "mlruns").glob("*/*/tags/tp-check.outcome")
    of_run = logged.parents[1]
    assert logged.read_text() == "ABSTAIN"
    assert (of_run / "metrics" / "tp-check.violations").read_text().split()[1] == "0.0"
    assert '"outcome": "ABSTAIN"' in (of_run / "artifacts" / "tp-check" / RESULT).read_text()
    assert "name: judged" in (of_run.parent / "meta.yaml").read_text()


@pytest.mark.slow
def test_wandb_gets_a_summary_and_the_result_as_an_artifact(folder):
    """What could not be judged is logged, too."""
    done = run(folder, "verify", "gone.toml", "--report", "wandb")

    assert (done.returncode, done.stdout) == (2, "")
    (logged,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    content = logged.read_bytes()
    for word in (b"tp-verify/outcome", b"ERROR", b"tp-verify-result", RESULT.encode()):
        assert word in content


@pytest.mark.slow
def test_a_library_that_fails_is_a_line_and_changes_no_verdict(folder):
    """This store needs a word of consent, which is not given."""
    store = {"MLFLOW_TRACKING_URI": "file:./mlruns", "MLFLOW_ALLOW_FILE_STORE": "false"}

    done = run(folder, "diff", "a.trace", "a.trace", "--report", "mlflow", **store)

    assert done.returncode == 0
    assert done.stdout.startswith("PASS")
    assert done.stderr.startswith("tp-diff: --report mlflow: nothing was logged: MlflowException:")
    assert done.stderr.count("\n") == 1


def test_a_library_that_is_missing_is_told_before_any_work_is_done(folder):
    done = run(
        folder, "diff", "none.trace", "b.trace", "--report", "wandb",
        first="sys.modules['wandb'] = None",
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tp-diff: --report wandb: wandb is not installed here; pip install 'traceparity[wandb]'\n"
    )


def test_a_library_that_is_not_known_is_a_mistake(folder):
    done = run(folder, "check", "a.trace", "--report", "excel")

    assert done.returncode == 2
    assert "no library 'excel'; there are wandb, mlflow, tensorboard" in done.stderr
