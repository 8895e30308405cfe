"""Programs in a folder, run plainly or recorded, and what their traces say."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceparity.tracefmt.reader import open_trace

TRAINING = """
    import torch
    from torch import nn

    def train(steps, left_over=False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).square().mean().backward()
            optimizer.step()
        if left_over:
            model(torch.randn(2, 4)).square().mean().backward()
        return model
"""
"""A module that programs import: a few steps, and a pass without an update after them."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What a process leaves behind."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a trace says of its recording."""

    steps: list[int]
    tail: bool
    complete: bool
    reason: str
    rank: int
    world: int


class Workshop:
    """A folder with programs, and the ways to run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trace = folder / "run.trace"
        self.write("training.py", TRAINING)

    def write(self, name: str, text: str, *, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        path.chmod(mode)
        return path

    def environment(self, **changes: str) -> dict[str, str]:
        """That of a user whose shell finds this interpreter and our commands first."""
        folder = str(Path(sys.executable).parent)
        path = os.pathsep.join([folder, os.environ.get("PATH", "")])
        return {**os.environ, "PATH": path, **changes}

    def start(self, *command: str | Path, **options: Any) -> subprocess.Popen[str]:
        """Start a process with a pipe to its stdout and one to its stderr."""
        return subprocess.Popen(
            [str(word) for word in command],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(
        self, *command: str | Path, stdin: str = "", variables: Mapping[str, str] | None = None
    ) -> Ending:
        """Run a command to its end."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=self.environment(**(variables or {})),
            capture_output=True,
            text=True,
            timeout=120,
            input=stdin,
            check=False,
        )
        return Ending(done.returncode, done.stdout, done.stderr)

    def record(self, *target: str | Path, options: tuple[str, ...] = (), **others: Any) -> Ending:
        """Run a command under `tp-record`, which replaces the last trace."""
        first = ("tp-record", "-o", self.trace, "--overwrite", *options, "--")
        return self.run(*first, *target, **others)

    def told(self, trace: Path | None = None) -> Told:
        """What a trace says of its recording; its steps are read, so they are sound."""
        with open_trace(trace or self.trace) as opened:
            for step in opened.steps:
                assert len(opened.columns(step.number)) == sum(step.observations)
            return Told(
                [step.number for step in opened.steps],
                bool(opened.steps) and opened.steps[-1].tail,
                opened.complete,
                opened.incomplete_reason,
                opened.header.rank,
                opened.header.world_size,
            )


def our_lines(stderr: str) -> list[str]:
    """The lines that we have written to a program's stderr."""
    return [line for line in stderr.splitlines() if line.startswith("traceparity: ")]


def without_our_lines(stderr: str) -> str:
    return re.sub(r"(?m)^traceparity: .*\n", "", stderr)
