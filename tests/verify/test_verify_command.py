"""The command: its status, its reports, its folder, and how it is interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest
from made_up import TRAIN

from traceparity.differ.result import Outcome
from traceparity.verify.result import worst

pytestmark = pytest.mark.slow

ALL = """
[[case]]
name = "good one"
kind = "repeat"
command = "TRAIN"
environment = { TOKEN = "hunter2" }

[[case]]
name = "bad|one"
kind = "compare"
reference = "TRAIN"
target = "TRAIN --fault 1"

[[case]]
name = "undecided"
kind = "compare"
reference = "TRAIN --noise 1e-3"
target = "TRAIN"
repeat_reference = true

[[case]]
name = "wrong"
kind = "check"
command = "TRAIN --status 9"
"""


@pytest.fixture(scope="module")
def everything(shared_commands):
    """One run of all four outcomes, in all formats at once."""
    folder = shared_commands.folder
    (folder / "parity.toml").write_text(ALL.replace("TRAIN", TRAIN))
    environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    words = ["--format", "text", "--format", "json=r.json", "--format", "junit=j.xml"]
    done = subprocess.run(
        [sys.executable, "-m", "traceparity.cli.verify", "parity.toml", "-j", "2",
         *words, "--format", "github=g.txt"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return folder, done


def test_the_status_is_that_of_the_worst_case(everything):
    assert everything[1].returncode == 2
    outcomes = [Outcome.PASS, Outcome.ABSTAIN, Outcome.FAIL, Outcome.ERROR]
    for number, outcome in enumerate(outcomes, 1):
        assert worst(outcomes[:number]) is outcome


def test_the_text_report_tells_of_each_case_and_shows_what_does_not_pass(everything):
    text = everything[1].stdout

    for line in ("PASS  good one", "FAIL  bad|one", "ABSTAIN  undecided", "ERROR  wrong"):
        assert line in text
    assert "ERROR  4 cases: 1 ERROR, 1 FAIL, 1 ABSTAIN, 1 PASS." in text
    assert "where      head.weight  value" in text
    assert "| a warning" in text


def test_the_json_report_holds_executions_and_comparisons(everything):
    folder, _ = everything
    data = json.loads((folder / "r.json").read_text())

    good, bad, undecided, wrong = data["cases"]
    assert data["outcome"] == "ERROR"
    assert [case["outcome"] for case in data["cases"]] == ["PASS", "FAIL", "ABSTAIN", "ERROR"]
    assert good["executions"][0]["environment"] == ["TOKEN"]
    assert 0 < sum(run["seconds"] for run in good["executions"]) <= good["seconds"]
    assert bad["comparison"]["first_divergence"]["component"] == "head.weight"
    assert undecided["comparison"]["first_divergence"]["step"] == 0
    assert wrong["executions"][0]["status"] == 9
    assert wrong["executions"][0]["stderr_tail"] == "a warning"


def test_junit_has_a_test_case_for_each_case(everything):
    root = ET.fromstring((everything[0] / "j.xml").read_text())

    counts = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}
    assert [case.get("name") for case in root] == ["good one", "bad|one", "undecided", "wrong"]
    assert float(root[0].get("time")) > 0


def test_github_gets_annotations_and_a_summary(everything):
    folder, _ = everything
    annotations = (folder / "g.txt").read_text().splitlines()
    summary = (folder / "summary.md").read_text()

    assert [line.split(" ")[0] for line in annotations] == [
        "::notice", "::error", "::warning", "::error"
    ]  # fmt: skip
    assert annotations[1].startswith("::error title=bad|one FAIL::the runs part at step 1")
    assert "| bad\\|one | compare | ❌ FAIL |" in summary
    assert "<details><summary>wrong</summary>" in summary


def test_values_of_the_environment_are_in_no_report(everything):
    folder, done = everything
    reports = [(folder / name).read_text() for name in ("r.json", "j.xml", "g.txt", "summary.md")]

    assert not any("hunter2" in text for text in (*reports, done.stdout, done.stderr))


def test_cases_are_chosen_by_name_and_glob(cases, commands):
    path = cases.write(ALL)

    listed = commands.run("tp-verify", path, "good*", "bad|one", "--list")
    unknown = commands.run("tp-verify", path, "nothing")

    assert listed.stdout == "repeat        good one\ncompare       bad|one\n"
    assert unknown.returncode == 2
    assert "no case 'nothing'; there are good one, bad|one" in unknown.stderr


def test_a_file_that_cannot_be_read_is_an_error_in_every_file_that_was_asked_for(commands):
    done = commands.run("tp-verify", "no.toml", "--format", "json=r.json", "--format", "junit=j")

    assert done.returncode == 2
    assert done.stdout == ""
    assert "tp-verify: no.toml: cannot read the case file" in done.stderr
    assert json.loads((commands.folder / "r.json").read_text())["outcome"] == "ERROR"
    assert 'errors="1"' in (commands.folder / "j").read_text()


def test_what_was_asked_for_twice_or_in_vain_is_told(cases, commands):
    """Before an earlier report is removed."""
    path = cases.write(ALL)
    report = cases.folder / "r"
    report.write_text("of an earlier run")

    twice = commands.run("tp-verify", path, "--format", f"json={report}",
                         "--format", f"junit={cases.folder / '.' / 'r'}")  # fmt: skip
    over = commands.run("tp-verify", path, "--format", f"json={path}")
    listing = commands.run("tp-verify", path, "--list", "--format", "json")

    assert (twice.returncode, over.returncode, listing.returncode) == (2, 2, 2)
    assert "would be written over the report json=" in twice.stderr
    assert "would be written over what is judged" in over.stderr
    assert "--list prints names and kinds alone" in listing.stderr
    assert report.read_text() == "of an earlier run"


def test_a_folder_with_something_else_in_it_is_not_emptied(cases, commands):
    path = cases.write(ALL)
    (cases.folder / "parity.verify").mkdir()
    precious = cases.folder / "parity.verify" / "precious.txt"
    precious.write_text("mine")

    done = commands.run("tp-verify", path)

    assert done.returncode == 2
    assert "holds something else; choose another with --work" in done.stderr
    assert precious.read_text() == "mine"


INTERRUPTED = """
[[case]]
name = "before"
kind = "check"
command = "TRAIN"

[[case]]
name = "it"
kind = "check"
command = "TRAIN --hang"

[[case]]
name = "after"
kind = "check"
command = "TRAIN"
"""


@pytest.mark.parametrize("numbers", [[signal.SIGINT] * 3, [signal.SIGTERM], [signal.SIGHUP]])
def test_an_interrupt_ends_what_runs_and_tells_what_was_judged(numbers, cases):
    """Also where it is pressed again while everything ends."""
    path = cases.write(INTERRUPTED)
    (cases.folder / "r.json").write_text("of an earlier run")
    child = subprocess.Popen(
        [sys.executable, "-m", "traceparity.cli.verify", path.name, "--format", "text",
         "--format", "json=r.json", "--format", "junit=j.xml"],
        cwd=cases.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    log = cases.folder / "parity.verify/it/command.stderr.log"
    while child.poll() is None and not (log.exists() and log.read_text()):
        time.sleep(0.05)
    assert not (cases.folder / "r.json").exists()

    for number in numbers:
        child.send_signal(number)
        time.sleep(0.1)
    text, said = child.communicate(timeout=60)

    assert child.returncode == 130, said
    assert "ERROR  Interrupted; 3 cases: 2 ERROR, 1 PASS." in text
    assert "tp-verify: interrupted" in said
    data = json.loads((cases.folder / "r.json").read_text())
    assert data["interrupted"]
    assert [(case["outcome"], case["reason"]) for case in data["cases"][1:]] == [
        ("ERROR", "interrupted while command ran"), ("ERROR", "interrupted before it began")
    ]  # fmt: skip
    assert data["cases"][0]["outcome"] == "PASS"
    assert 'errors="2"' in (cases.folder / "j.xml").read_text()
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(["pgrep", "-f", f"{path.parent}"], check=True, stdout=subprocess.DEVNULL)


def test_a_case_without_a_folder_is_an_error_and_the_others_are_judged(cases):
    text = '[[case]]\nname = "{}"\nkind = "check"\ncommand = "true"\n'
    result = cases.run(text.format("x" * 300) + text.format("b"))

    first, second = result.cases
    assert "File name too long" in first.verdict.reason
    assert [played.role for played in second.played] == ["command"]


def test_no_report_does_what_a_program_asks_of_a_terminal_or_of_a_runner(cases):
    said = "\n::error file=x::injected\n\x1b[31mred\x1b[0m\x07\x1b]0;title\x07 end\n"
    (cases.folder / "noisy").write_text(said)
    script = cases.folder / "noisy.sh"
    script.write_text(f"cat {cases.folder / 'noisy'} >&2\nexit 3\n")
    path = cases.write(f'[[case]]\nname = "a"\nkind = "check"\ncommand = ["bash", "{script}"]\n')

    done = subprocess.run(
        [sys.executable, "-m", "traceparity.cli.verify", path, "--format", "text"],
        env={**os.environ, "GITHUB_ACTIONS": "true"},
        capture_output=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    text = done.stdout.decode()
    assert "red end" in text
    assert "injected" in text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
    assert not set(text) & {"\x1b", "\x07"}
