"""Starting a case file from one recorded run: facts, and blanks that must be filled in."""

import re
import shlex

import pytest
from made_up import TRAIN

from traceparity.verify.case_file import read_cases
from traceparity.verify.errors import CaseFileError

pytestmark = pytest.mark.slow

WORDS = shlex.split(TRAIN)


def test_blanks_make_the_file_invalid_until_they_are_filled_in(commands):
    done = commands.run("tp-verify", "--init", "resume", "--", *WORDS, "--steps", "6")
    path = commands.folder / "parity.toml"

    assert done.returncode == 0, done.stderr
    assert "fill in save, resume" in done.stdout
    assert "6 updates of" in path.read_text()
    with pytest.raises(CaseFileError, match=r"parity.toml:\d+: case\[0\].save: still to be filled"):
        read_cases(path)

    text = path.read_text()
    text = re.sub(r"(?m)^save = .*", f'save = "{TRAIN} --steps 3 --out {{work}}"', text)
    resume = f'resume = "{TRAIN} --steps 6 --resume {{save}}/last.json"'
    path.write_text(re.sub(r"(?m)^resume = .*", resume, text))
    assert commands.run("tp-verify", path).returncode == 0


def test_what_needs_nothing_more_runs_at_once(commands):
    done = commands.run("tp-verify", "--init", "check", "-o", "check.toml", "--", *WORDS)

    assert done.returncode == 0, done.stderr
    assert commands.run("tp-verify", "check.toml").returncode == 0


def test_what_a_run_does_not_tell_is_a_blank(commands):
    done = commands.run("tp-verify", "--init", "coverage", "--", *WORDS)

    assert done.returncode == 0, done.stderr
    with pytest.raises(CaseFileError, match="still to be filled in"):
        read_cases(commands.folder / "parity.toml")


def test_a_command_that_cannot_be_a_case_leaves_no_file(commands):
    failed = commands.run("tp-verify", "--init", "repeat", "--", *WORDS, "--status", "4")
    (commands.folder / "parity.toml").write_text("mine")
    there = commands.run("tp-verify", "--init", "repeat", "--", *WORDS)

    assert failed.returncode == there.returncode == 2
    assert "it ended with exit status 4; the last line of its stderr: a warning" in failed.stderr
    assert "parity.toml exists; name another with -o" in there.stderr
    assert (commands.folder / "parity.toml").read_text() == "mine"
