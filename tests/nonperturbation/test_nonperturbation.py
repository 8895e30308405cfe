"""A recorded run is the run: the same bits, random streams, output and end."""

import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from traceparity.tracefmt.reader import open_trace

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
EXAMPLES = HERE.parents[1] / "examples"
JOB = HERE.parent / "faults" / "job.py"
DRIVER = HERE / "driver.py"

pytestmark = pytest.mark.slow

COMMANDS = [
    *(str(path) for path in sorted(PROGRAMS.glob("*.py")) if path.name != "exits.py"),
    *(f"{PROGRAMS / 'exits.py'} {how}" for how in ("code", "message", "os", "signal", "interrupt")),
    f"{EXAMPLES / 'gpt/train.py'} --steps 16 --save half.pt",
    f"{EXAMPLES / 'forgotten_train/train.py'}",
    f"{EXAMPLES / 'first_run/train.py'}",
    f"{EXAMPLES / 'refactor/before.py'}",
    f"{EXAMPLES / 'refactor/after.py'}",
    str(JOB),
]


@dataclass(frozen=True, slots=True)
class Ending:
    """What a process leaves behind; the status is the one that a shell sees."""

    status: int
    stdout: str
    stderr: str
    state: dict[str, str]


def without_torch_frames(text: str) -> str:
    """A traceback without `nn.Module.__call__`: torch takes a longer way where hooks exist."""
    frame = r'  File ".*torch/nn/modules/module\.py", line \d+, in \w+\n(    .*\n)*'
    return re.sub(frame, "", text)


def execute(commands: Any, folder: Path, before: list[str], command: str) -> Ending:
    """Run a script under the driver, in a folder of its own."""
    folder.mkdir()
    report = folder / "state.json"
    done = commands.run(*before, DRIVER, report, *shlex.split(command), cwd=folder)
    state = json.loads(report.read_text()) if report.exists() else {}
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return Ending(status, done.stdout, without_torch_frames(done.stderr), state)


def assert_same_with_recorder(commands: Any, command: str, capture: str) -> None:
    trace = commands.folder / "run.trace"
    record = ["tp-record", "-o", str(trace), "--capture", capture, "--"]

    plain = execute(commands, commands.folder / "plain", ["python"], command)
    recorded = execute(commands, commands.folder / "recorded", record, command)

    with open_trace(trace) as opened:
        assert opened.steps, "nothing was recorded, so nothing was tested"
    changed = {
        key: (plain.state.get(key), recorded.state.get(key))
        for key in plain.state.keys() | recorded.state.keys()
        if plain.state.get(key) != recorded.state.get(key)
    }
    assert not changed
    assert recorded.stdout == plain.stdout
    assert recorded.stderr.replace("/recorded/", "/plain/") == plain.stderr
    assert recorded.status == plain.status


def name_of(command: str) -> str:
    script, *arguments = command.split()
    return " ".join([f"{Path(script).parent.name}/{Path(script).stem}", *arguments[:1]])


@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_the_recorder_changes_nothing(command: str, commands: Any) -> None:
    assert_same_with_recorder(commands, command, "sketch")


@pytest.mark.parametrize("capture", ["digest", "values"])
@pytest.mark.parametrize("name", ["encoder", "averages", "amp"])
def test_no_capture_level_changes_anything(name: str, capture: str, commands: Any) -> None:
    assert_same_with_recorder(commands, str(PROGRAMS / f"{name}.py"), capture)


def test_a_resumed_training_is_not_changed(commands: Any) -> None:
    script = EXAMPLES / "gpt" / "train.py"
    half = commands.folder / "half.pt"
    saved = commands.run("python", script, "--stop-at", "5", "--save", half)
    assert saved.returncode == 0, saved.stderr

    assert_same_with_recorder(commands, f"{script} --steps 12 --resume {half}", "sketch")


def test_the_driver_would_notice_one_changed_bit(commands: Any) -> None:
    """The comparison is not vacuous: another program of the same shape is told apart."""
    changed = commands.folder / "train.py"
    shutil.copy(EXAMPLES / "first_run" / "train.py", changed)
    original = str(EXAMPLES / "first_run" / "train.py")
    text = changed.read_text()
    changed.write_text(text + "with torch.no_grad():\n    model[0].weight.view(-1)[3].neg_()\n")

    plain = execute(commands, commands.folder / "plain", ["python"], original)
    other = execute(commands, commands.folder / "other", ["python"], str(changed))

    differing = [key for key in plain.state if plain.state[key] != other.state[key]]
    assert differing == ["0 Linear weight"]
