"""Fixtures for the differ: synthetic traces in a fresh folder."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Test modules are no package, so what they share is found by path.
sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Run, Step, write_trace

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy
from traceparity.differ.result import DiffResult


class Bench:
    """Writes traces and compares them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written = 0

    def write(self, steps: list[Step], **options: Any) -> Path:
        self._written += 1
        return write_trace(self.folder / f"{self._written}.trace", steps, **options)

    def diff(
        self,
        reference: list[Step],
        target: list[Step],
        policy: Policy | None = None,
        **options: Any,
    ) -> DiffResult:
        """Compare two runs; ``options`` go to both traces."""
        paths = self.write(reference, **options), self.write(target, **options)
        return diff_runs(paths[0], [paths[1]], policy or Policy())

    def changed(
        self,
        change: Callable[[list[Step]], object],
        policy: Policy | None = None,
        run: Run | None = None,
        count: int = 5,
        **options: Any,
    ) -> DiffResult:
        """Compare a run with itself after a change."""
        run = run or Run()
        target = run.steps(count)
        change(target)
        return self.diff(run.steps(count), target, policy, **options)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Writes and compares traces in a fresh folder."""
    return Bench(tmp_path)


RESUME_AT_3 = Policy(Align(kind="resume", step_offset=3))
AUTO_RESUME = Policy(Align(kind="resume"))
