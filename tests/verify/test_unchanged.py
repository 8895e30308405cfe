"""The kind `unchanged`: what recording must not touch, and what is not its fault."""

import pytest

from traceparity.differ.result import Outcome
from traceparity.verify.case_file import read_cases
from traceparity.verify.runner import run_cases

TRAINING = """
import os, sys, time
import numpy, torch

numpy.random.seed(1)
torch.manual_seed(int(time.time_ns()) if "noisy" in sys.argv else 0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
if "disturbed" in sys.argv and "TRACEPARITY_RECORD" in os.environ:
    model[1].momentum = 0.2
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(5, 3) + float(numpy.random.rand())).square().mean().backward()
    optimizer.step()
"""


def test_equal_ends_pass_with_two_runs(cases):
    case = cases.one("unchanged", 'command = "TRAIN --out {work} --say {work}/last"')

    assert case.outcome is Outcome.PASS, case.verdict.reason
    assert [played.role for played in case.played] == ["plain", "recorded"]


@pytest.mark.parametrize(
    ("options", "said"),
    [("--disturbed", "process 0 model[0].weight"), ("--broken", "exit status")],
)
def test_what_recording_changes_fails_by_name(options, said, cases):
    case = cases.one("unchanged", f'command = "TRAIN {options}"')

    assert case.outcome is Outcome.FAIL
    assert case.verdict.reason == f"with recording other values come out: {said}"
    roles = ["plain", "recorded", "plain-2", "recorded-2"]
    assert [played.role for played in case.played] == roles


def test_a_program_that_never_ends_alike_abstains(cases):
    case = cases.one("unchanged", 'command = "TRAIN --noise 1e-3"')

    assert case.outcome is Outcome.ABSTAIN
    assert "two equal runs differ as well: process 0" in case.verdict.reason


@pytest.mark.parametrize("options", ["--status 3", "--hang"])
def test_a_program_that_fails_by_itself_is_an_error(options, cases):
    case = cases.one("unchanged", f'command = "TRAIN {options}"', "timeout = 2")

    assert case.outcome is Outcome.ERROR
    assert case.verdict.reason.startswith("plain: it ")


@pytest.mark.slow
def test_weights_buffers_optimizers_and_random_streams_of_a_real_training_are_compared(cases):
    (cases.folder / "train.py").write_text(TRAINING)
    text = "".join(
        f'[[case]]\nname = "{name}"\nkind = "unchanged"\ncommand = "train.py {name}"\n'
        for name in ("sound", "disturbed")
    )
    path = cases.write(text + '[defaults]\nenvironment = { PYTHONHASHSEED = "0" }\n')

    sound, disturbed = run_cases(read_cases(path), work=cases.folder / "w").cases

    assert disturbed.outcome is Outcome.FAIL, disturbed.verdict.reason
    assert "model[0].1.running_mean" in disturbed.verdict.reason
    assert sound.outcome is Outcome.PASS, sound.verdict.reason
    assert len(sound.played) == 2
