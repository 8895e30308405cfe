"""The shell steps of the GitHub action and of the GitLab job, executed as their runners do."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples" / "ci"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
GITLAB = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["parity"]
BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c")
"""How GitHub runs a step with ``shell: bash``."""

pytestmark = pytest.mark.slow


@dataclass
class Runner:
    """A checkout in which steps are run, and what they leave for one another."""

    folder: Path
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    def shell(self, text: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run(
            [*BASH, text], cwd=self.folder, env={**os.environ, "PATH": path, **variables},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def action(self, **inputs: str) -> tuple[int, str]:
        """Run the action; returns the status of the step that ended it, and what was printed."""
        unknown = inputs.keys() - ACTION["inputs"].keys()
        assert not unknown, f"the action has no inputs {unknown}"
        given = {
            name: inputs.get(name, one.get("default")) for name, one in ACTION["inputs"].items()
        }
        printed, status = "", 0
        for step in ACTION["runs"]["steps"]:
            if "run" not in step or (step["name"] == "Install" and given["install"] == "no"):
                continue
            files = {name: self.folder.parent / name for name in ("outputs", "summary")}
            for file in files.values():
                file.write_text("")
            done = self.shell(step["run"], {
                **{name: self._value(text, given) for name, text in step["env"].items()},
                "GITHUB_OUTPUT": str(files["outputs"]),
                "GITHUB_STEP_SUMMARY": str(files["summary"]),
            })  # fmt: skip
            printed += done.stdout + done.stderr
            self.summary += files["summary"].read_text()
            lines = files["outputs"].read_text().splitlines()
            self.outputs.update(line.split("=", 1) for line in lines)
            if status := done.returncode:
                break
        return status, printed

    def _value(self, text: str, given: Mapping[str, Any]) -> str:
        known = {
            **{f"inputs.{name}": value for name, value in given.items()},
            **{f"steps.verify.outputs.{name}": value for name, value in self.outputs.items()},
            "github.action_path": str(ROOT),
        }
        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda found: str(known[found[1]]), text)


@pytest.fixture
def checkout(tmp_path: Path) -> Runner:
    """A repository with the case file of the example and its training."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy(CI / "parity.toml", folder)
    shutil.copy(ROOT / "examples" / "first_run" / "train.py", folder)
    return Runner(folder)


def outcomes(folder: Path) -> dict[str, str]:
    result = json.loads((folder / "result.json").read_text())
    return {case["name"]: case["outcome"] for case in result["cases"]}


def test_the_action_records_the_main_branch_then_judges_a_pull_request(checkout: Runner) -> None:
    """Green for the same training, red with a report for another one."""
    compared = {"file": "parity.toml", "install": "no", "cases": "as*"}
    status, printed = checkout.action(**compared, update="true")
    assert status == 0, printed
    assert (checkout.folder / "main" / "train.trace").is_file()

    status, printed = checkout.action(**compared)
    assert status == 0, printed
    assert checkout.outputs == {"status": "0", "outcome": "PASS"}
    report = checkout.folder / "traceparity-report"
    assert outcomes(report) == {"as on the main branch": "PASS"}

    script = checkout.folder / "train.py"
    text = script.read_text()
    script.write_text(text.replace("default=1e-2", "default=2e-2"))
    assert script.read_text() != text
    status, printed = checkout.action(**compared)
    assert status == 1, printed
    assert checkout.outputs["outcome"] == "FAIL"
    assert outcomes(report) == {"as on the main branch": "FAIL"}
    assert re.search(r"^::error file=.*train\.py,line=\d+", printed, re.MULTILINE)
    assert "as on the main branch" in checkout.summary
    # What the step that uploads takes holds the trace that parts.
    upload = next(
        step for step in ACTION["runs"]["steps"] if "upload-artifact" in step.get("uses", "")
    )
    assert upload["with"]["path"] == "${{ inputs.folder }}"
    assert list(report.rglob("*.trace"))


@pytest.mark.parametrize(
    ("cases", "judged"),
    [
        ("", {"one", "two", "two words"}),
        ("one two", {"one", "two"}),
        ("\n'two words'\none\n", {"one", "two words"}),
        ("--list", None),
        ("'one", None),
    ],
)
def test_the_action_judges_the_cases_that_it_is_given(
    cases: str, judged: set[str] | None, checkout: Runner
) -> None:
    script = ROOT / "tests" / "verify" / "fake_training.py"
    texts = [
        f'[[case]]\nname = "{name}"\nkind = "check"\ncommand = ["{script}"]\n'
        for name in ("one", "two", "two words")
    ]
    (checkout.folder / "parity.toml").write_text("\n".join(texts))

    status, printed = checkout.action(file="parity.toml", install="no", cases=cases)

    assert bool(status) == (judged is None), printed
    report = checkout.folder / "traceparity-report"
    assert (set(outcomes(report)) if judged else None) == judged


def test_a_word_that_is_neither_true_nor_false_ends_the_action(checkout: Runner) -> None:
    status, printed = checkout.action(file="parity.toml", install="no", update="True")

    assert status == 2
    assert "true or false, not True" in printed


def test_a_case_file_that_cannot_be_used_ends_the_action_with_an_error(checkout: Runner) -> None:
    (checkout.folder / "parity.toml").write_text("[[case]]\nkind = 'repeated'\n")

    status, printed = checkout.action(file="parity.toml", install="no")

    assert status == 2
    assert checkout.outputs == {"status": "2", "outcome": "ERROR"}
    assert "parity.toml" in printed


def test_the_action_installs_its_own_version(checkout: Runner, tmp_path: Path) -> None:
    """Into a fresh environment; what it depends on is left out."""
    install = next(step for step in ACTION["runs"]["steps"] if step["name"] == "Install")
    source, fresh = tmp_path / "source", tmp_path / "venv"
    ignored = shutil.ignore_patterns(".*", "tests", "docs", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    venv.create(fresh, with_pip=True)

    done = checkout.shell(
        install["run"],
        {
            "TP_INSTALL": "",
            "TP_THIS": str(source),
            "PIP_NO_DEPS": "1",
            "PATH": os.pathsep.join([str(fresh / "bin"), os.environ["PATH"]]),
        },
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert (fresh / "bin" / "tp-verify").is_file()
    assert list(fresh.rglob("traceparity/verify/pytest_plugin.py"))


def test_the_gitlab_job_records_the_main_branch_then_judges(checkout: Runner) -> None:
    """The line that installs is left to the test above."""
    install, *steps = GITLAB["script"]
    assert install.startswith("python -m pip install")
    text = (checkout.folder / "parity.toml").read_text()
    # The case that compares is enough: each training costs seconds.
    (checkout.folder / "parity.toml").write_text("[[case]]" + text.split("[[case]]")[2])
    for update in ("--update", GITLAB["variables"]["UPDATE"]):
        done = checkout.shell("\n".join(steps), {"UPDATE": update})
        assert done.returncode == 0, done.stdout + done.stderr

    junit = ElementTree.parse(checkout.folder / GITLAB["artifacts"]["reports"]["junit"])
    assert [case.get("name") for case in junit.iter("testcase")] == ["as on the main branch"]
    assert not list(junit.iter("failure"))


def test_the_workflow_gives_the_action_inputs_that_it_has() -> None:
    workflow = yaml.safe_load((CI / "github-workflow.yml").read_text())
    (step,) = [
        step
        for step in workflow["jobs"]["parity"]["steps"]
        if "traceparity@" in step.get("uses", "")
    ]

    assert step["with"].keys() <= ACTION["inputs"].keys()
    required = {name for name, one in ACTION["inputs"].items() if one.get("required")}
    assert required <= step["with"].keys()
