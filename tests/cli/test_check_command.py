"""``tp-check`` as a user runs it: exit status, streams, formats, mistakes, real recordings."""

import functools
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from sampled import Batch, epoch, write_run

PROGRAM = [sys.executable, "-m", "traceparity.cli.check"]
COVERED = ("--coverage", "exactly_once", "--expected", "range(0, 4)")

TRAINING = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset, Subset

class Rows(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {"row": index + 100, "name": f"row{index}", "x": torch.full((3,), float(index))}

torch.manual_seed(0)
rows, fault = Rows(), sys.argv[1]
sampler = [1, 3, 5, 7, 9, 11, 0, 2, 4, 6, 8, 10]
if fault == "twice":
    sampler[4] = 3
if fault == "part":
    rows, sampler = Subset(rows, [2, 4, 8, 11]), [3, 2, 1, 0]
loader = DataLoader(rows, batch_size=4, sampler=sampler, num_workers=2 if fault == "workers" else 0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=float("nan") if fault == "nan" else 0.01)
for epoch in range(2):
    for step, batch in enumerate(loader):
        if fault == "stop" and epoch == 1 and step == 1:
            break
        optimizer.zero_grad()
        model(batch["x"]).sum().backward()
        optimizer.step()
"""


def tp_check(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
        check=False,
    )


@pytest.fixture
def traces(tmp_path: Path) -> dict[str, Path]:
    made = {
        "good": [epoch([0, 1], [2, 3])],
        "twice": [epoch([0, 1], [1, 3])],
        "unknown": [epoch(None, None)],
    }
    for name, epochs in made.items():
        (tmp_path / name).mkdir()
        made[name] = write_run(tmp_path / name, epochs)
    return made


@pytest.mark.parametrize(
    ("name", "status", "outcome"),
    [("good", 0, "PASS"), ("twice", 1, "FAIL"), ("unknown", 3, "ABSTAIN")],
)
def test_the_exit_status_tells_the_outcome(traces, name, status, outcome):
    done = tp_check(traces[name], *COVERED)

    assert done.returncode == status
    assert done.stdout.startswith(outcome)
    assert done.stderr == ""


def test_allow_abstain_turns_abstain_and_nothing_else_into_success(traces):
    assert tp_check(traces["unknown"], *COVERED, "--allow-abstain").returncode == 0
    assert tp_check(traces["twice"], *COVERED, "--allow-abstain").returncode == 1


def test_a_trace_in_which_nothing_can_be_judged_abstains(traces):
    done = tp_check(traces["good"])

    assert done.returncode == 3
    assert "nothing was judged" in done.stdout.lower()


def test_a_folder_of_ranks_is_one_run(tmp_path):
    run = write_run(tmp_path, [epoch([0], [1])], [epoch([2], [0])])

    done = tp_check(run, *COVERED, "--format", "json")
    result = json.loads(done.stdout)

    assert done.returncode == 1
    assert result["target"]["ranks"] == 2
    assert [(each["kind"], each["sample_id"], each["rank"], each["position"])
            for each in result["coverage"]["violations"]] == [
        ("overlap", 0, 1, 1), ("missing", 3, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["{good}", "--coverage", "sometimes"],
        ["{good}", "--format", "yaml"],
        ["{good}", "--no-such-option"],
        ["{good}", "--id", "batch[row]"],
        ["{good}", "--coverage", "exactly_once", "--id", "rows"],
        ["{good}", "--coverage", "exactly_once", "--expected", "0..9"],
        ["{good}", "--coverage", "exactly_once", "--expected", "[1, 1]"],
        ["{good}", "--coverage", "exactly_once", "--expected", "range(0, 4, 0)"],
        ["{good}", "--coverage", "exactly_once", "--expected", "range(0, 99999999999999999999)"],
        ["{good}", "--coverage", "exactly_once", "--padding", "1"],
        ["{good}", "--coverage", "expected_padding"],
        ["{good}", "--coverage", "no_cross_rank_overlap", "--expected", "[1]"],
        ["{good}", "--policy", "{tmp}/absent.toml"],
        ["{tmp}/absent.trace"],
        ["{tmp}"],
        ["{good}", "--format", "json={tmp}/no/such/folder/result.json"],
    ],
)
def test_a_mistake_is_told_and_exits_2(traces, tmp_path, arguments):
    values = {name: str(path) for name, path in traces.items()} | {"tmp": str(tmp_path)}

    done = tp_check(*(argument.format(**values) for argument in arguments))

    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a trace", b"\x00" * 4096])
def test_a_file_that_is_no_trace_is_an_error_that_names_it(tmp_path, content):
    broken = tmp_path / "broken.trace"
    broken.write_bytes(content)

    done = tp_check(broken, "--format", f"json={tmp_path / 'result.json'}")

    assert done.returncode == 2
    assert "broken.trace" in done.stderr
    assert done.stderr.count("\n") == 1
    assert json.loads((tmp_path / "result.json").read_text())["outcome"] == "ERROR"


def test_a_policy_file_declares_and_options_are_stronger(traces, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[coverage]\npolicy = "exactly_once"\nexpected = [0, 1, 2, 3]\n')

    assert tp_check(traces["twice"], "--policy", policy).returncode == 1
    weaker = ("--coverage", "at_least_once", "--expected", "[0, 1, 3]")
    assert tp_check(traces["twice"], "--policy", policy, *weaker).returncode == 0


def test_a_mistake_in_a_policy_names_file_line_and_key(traces, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[coverage]\npolicy = "exactly_once"\nid = "rows"\n')

    done = tp_check(traces["good"], "--policy", policy)

    assert done.returncode == 2
    assert f"{policy}:3: coverage.id" in done.stderr


def test_all_formats_at_once(traces, tmp_path):
    files = {name: tmp_path / f"result.{name}" for name in ("text", "json", "junit", "github")}

    done = tp_check(
        traces["twice"], *COVERED, *(f"--format={name}={path}" for name, path in files.items())
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert files["text"].read_text().startswith("FAIL")
    assert json.loads(files["json"].read_text())["coverage"]["violations_total"] == 2
    assert ElementTree.parse(files["junit"]).getroot().attrib["failures"] == "1"
    assert files["github"].read_text().startswith("::error title=traceparity FAIL::coverage")


def test_help_costs_little_and_loads_neither_numpy_nor_torch():
    code = (
        "import sys\n"
        "sys.argv = ['tp-check', '--help']\n"
        "from traceparity.cli.check import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print({'numpy', 'torch', 'rich', 'msgpack'} & set(sys.modules))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.endswith("set()\n")


def test_a_closed_pipe_is_no_reason_to_complain(traces):
    command = f"{' '.join(PROGRAM)} {traces['good']} | true"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert done.stderr == ""


def test_a_name_with_control_characters_cannot_break_a_report(tmp_path):
    path = write_run(tmp_path, [epoch(Batch(["\x1b[2J", "\x1b[2J"]))])

    done = tp_check(path, "--coverage", "exactly_once", "--format", "text", "--format", "junit")

    assert "\x1b" not in done.stdout
    assert "duplicate" not in done.stderr


@pytest.fixture(scope="module")
def recorded(shared_commands):
    """Records the training with a fault, each once, and keeps only digests of what it can."""
    script = shared_commands.folder / "train.py"
    script.write_text(TRAINING)
    return functools.cache(
        lambda fault: shared_commands.record(fault, script, fault, capture="digest")
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "options", "status", "said"),
    [
        ("none", (), 0, "24 samples in 2 epochs satisfy exactly_once"),
        ("workers", (), 0, "24 samples in 2 epochs satisfy exactly_once"),
        ("part", (), 0, "8 samples in 2 epochs satisfy exactly_once"),
        ("twice", (), 1, "sample 3"),
        ("stop", (), 3, "8 samples of epoch 1 cannot be called missing"),
        ("nan", (), 1, "optimizer:bias:value"),
        ("twice", ("--id", "batch[row]", "--expected", "range(100, 112)"), 1, "sample 103"),
        ("none", ("--id", "batch[row]", "--expected", "range(100, 112)"), 0, "24 samples"),
        ("twice", ("--id", "batch[name]"), 1, "sample 'row3'"),
    ],
)
def test_a_recorded_training_is_judged(recorded, fault, options, status, said):
    """Also at the lowest capture level: IDs of a batch keep their values at every level."""
    done = tp_check(recorded(fault), "--coverage", "exactly_once", *options)

    assert done.returncode == status, done.stdout + done.stderr
    assert said in " ".join(done.stdout.split())
