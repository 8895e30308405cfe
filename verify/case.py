"""A case: commands, and the relation that is declared of what they record."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from traceparity.differ.policy import Policy
from traceparity.recorder.settings import Settings
from traceparity.tracefmt.location import Location

ROLES: dict[str, tuple[str, ...]] = {
    "resume": ("reference", "save", "resume"),
    "accumulation": ("reference", "target"),
    "compare": ("reference", "target"),
    "repeat": ("command",),
    "coverage": ("command",),
    "check": ("command",),
    "unchanged": ("command",),
}
"""The kinds of cases, and the commands of each in the order in which they run."""
DEFAULT_TIMEOUT = 3600.0
"""Seconds that a command may take where nothing is said."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A reference that was recorded before.

    Attributes:
        trace: The trace; one that lies elsewhere can be read and not be rewritten.
        repeat: A second recording of the reference; where both disagree nothing can be judged.
        elsewhere: The policy where the trace was made with another torch or CPU; None for the
            case's own.
    """

    trace: Location
    repeat: Location | None = None
    elsewhere: Policy | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A declared relation of the commands' recordings.

    Attributes:
        name: What people call it.
        kind: One of `ROLES`.
        commands: The words of each command, by role; with placeholders.
        policy: The relation.
        archive: The archived reference; None where the reference is run.
        repetitions: How often the reference, or the command of a ``repeat``, is run.
        measured: Whether the noise of the reference is measured by its repetitions.
        finite: Whether values that are not finite are violations.
        invariants: What ``tp-infer`` learned from good runs; None for none.
        stdout: Whether ``unchanged`` compares what is written to stdout.
        timeout: Seconds that each command may take.
        environment: Variables to add; with placeholders.
        cwd: Where the commands run; with placeholders.
        settings: What is recorded.
    """

    name: str
    kind: str
    commands: Mapping[str, tuple[str, ...]]
    policy: Policy
    archive: Archive | None = None
    repetitions: int = 1
    measured: bool = False
    finite: bool = False
    invariants: Path | None = None
    stdout: bool = True
    timeout: float = DEFAULT_TIMEOUT
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "{root}"
    settings: Settings = field(default_factory=Settings)

    @property
    def folder_name(self) -> str:
        """The name of its folder: the case's, without what a file name should not have."""
        return re.sub(r"[^\w.-]+", "-", self.name).strip("-.") or "case"


@dataclass(frozen=True, slots=True)
class CaseFile:
    """The cases of a file.

    Attributes:
        path: The file.
        cases: In the order of the file.
    """

    path: Path
    cases: tuple[Case, ...]


_PLACEHOLDER = re.compile(
    r"\{(work|root|" + "|".join(dict.fromkeys(r for rs in ROLES.values() for r in rs)) + r")\}"
)


def placeholders(text: str) -> list[str]:
    """The placeholders in a text; braces around anything else are the text's own."""
    return _PLACEHOLDER.findall(text)


def expanded(text: str, folders: Mapping[str, Path]) -> str:
    """The text with the placeholders replaced by folders."""
    return _PLACEHOLDER.sub(lambda found: str(folders[found[1]]), text)
