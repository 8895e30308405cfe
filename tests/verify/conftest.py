"""Fixtures for verifications: a case file in a fresh folder, run by the command line or by us."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Test modules are no package, so what they share, and the made-up runs of the differ's tests, is
# found by path.
sys.path.insert(0, str(Path(__file__).parents[1] / "differ"))
sys.path.insert(0, str(Path(__file__).parent))

from made_up import TRAIN

from traceparity.verify.case_file import read_cases
from traceparity.verify.result import CaseResult, VerifyResult
from traceparity.verify.runner import run_cases
from traceparity.verify.work_folder import default_work


@dataclass
class Cases:
    """Writes case files and runs them."""

    folder: Path

    def write(self, text: str) -> Path:
        """A case file in which TRAIN is the made-up training."""
        path = self.folder / "parity.toml"
        path.write_text(text.replace("TRAIN", TRAIN))
        return path

    def run(self, text: str, **options: Any) -> VerifyResult:
        path = self.write(text)
        return run_cases(read_cases(path), work=default_work(path), **options)

    def one(self, kind: str, *lines: str, **options: Any) -> CaseResult:
        """The result of a file with one case."""
        body = "\n".join(lines)
        (case,) = self.run(f'[[case]]\nname = "it"\nkind = "{kind}"\n{body}\n', **options).cases
        return case


@pytest.fixture
def cases(tmp_path: Path) -> Cases:
    return Cases(tmp_path)
