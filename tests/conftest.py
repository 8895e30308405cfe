"""Fixtures for all tests: the command lines, run as a user runs them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Before torch is imported: a fork of a process that has a pool of threads waits for them for ever.
os.environ.setdefault("OMP_NUM_THREADS", "1")

OUTCOMES = {0: "PASS", 1: "FAIL", 2: "ERROR", 3: "ABSTAIN"}


def environment() -> dict[str, str]:
    """The environment of a user whose shell finds this interpreter and our commands first."""
    folder = str(Path(sys.executable).parent)
    path = os.pathsep.join([folder, os.environ.get("PATH", "")])
    # Threads of small programs that run side by side only wait for one another.
    return {"OMP_NUM_THREADS": "1", **os.environ, "PATH": path}


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs commands in real processes and keeps what they write in one folder."""

    folder: Path

    def run(
        self, *command: str | Path, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run any command."""
        return subprocess.run(
            [str(word) for word in command],
            cwd=cwd or self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=580,
            check=False,
        )

    def record(
        self, name: str, *target: str | Path, capture: str = "sketch", cwd: Path | None = None
    ) -> Path:
        """Record a program that ends well; returns its trace."""
        trace = self.folder / f"{name}.trace"
        done = self.run("tp-record", "-o", trace, "--capture", capture, "--", *target, cwd=cwd)
        assert done.returncode == 0, done.stderr
        assert trace.exists(), f"{target} wrote no trace\n{done.stderr}"
        return trace

    def diff(self, *arguments: str | Path) -> dict[str, Any]:
        """Compare traces; returns the JSON result, whose outcome agrees with the exit status."""
        done = self.run("tp-diff", "--format", "json", *arguments)
        assert done.returncode in OUTCOMES, done.stderr
        assert done.stdout, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        assert result["outcome"] == OUTCOMES[done.returncode], done.stderr
        return result


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    """The command lines, in a fresh folder."""
    return Commands(tmp_path)


@pytest.fixture(scope="module")
def shared_commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """The command lines, in a folder that all tests of a module share."""
    return Commands(tmp_path_factory.mktemp("shared"))
