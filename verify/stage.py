"""The stage of a case: a folder of its own, in which its commands run one after the other."""

import itertools
import re
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from traceparity.differ.result import Outcome
from traceparity.recorder.settings import Settings
from traceparity.tracefmt.errors import TraceparityError
from traceparity.verify.case import Case, expanded
from traceparity.verify.execution import Execution, run_plain, run_recorded
from traceparity.verify.result import Verdict


class Ended(Exception):
    """A case ends here.

    Attributes:
        verdict: What it comes to.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Played:
    """A command of a case that was run.

    Attributes:
        role: As what: ``reference``, ``save``, ...; ``reference-2`` for a repetition.
        execution: What came of it.
    """

    role: str
    execution: Execution


@dataclass(frozen=True, slots=True)
class _Where:
    """Where and with what a command runs."""

    out: Path
    cwd: Path
    environment: Mapping[str, str]


class Stage:
    """Runs the commands of one case.

    Attributes:
        case: The case.
        played: What was run so far.
    """

    def __init__(self, case: Case, root: Path, folder: Path, stop: threading.Event) -> None:
        """Take the case.

        Args:
            case: The case.
            root: The folder of the case file.
            folder: The case's own folder; it exists and is empty.
            stop: Set by another thread to end what runs.
        """
        self.case = case
        self.played: list[Played] = []
        # Absolute, since commands may run in any folder.
        self._folder = folder.absolute()
        self._folders = {"root": root.absolute()}
        self._stop = stop

    def run(self, role: str, number: int = 1) -> Path:
        """Run the command of a role in a working folder of its own, and return its trace.

        Args:
            role: The role.
            number: The how-manyth run of it, from 1.

        Raises:
            Ended: There is no trace of it to judge.
        """
        name = role if number == 1 else f"{role}-{number}"
        execution = self.execute(name, role)
        self._folders.setdefault(role, self._folder / name)
        return self._judged(name, execution)

    def run_again(self, role: str, name: str, settings: Settings) -> Path:
        """Run the command of a role again, recorded in another way, and return its trace.

        Args:
            role: The role.
            name: Tells this run from the others.
            settings: What is recorded.

        Raises:
            Ended: There is no trace of it to judge.
        """
        return self._judged(name, self.execute(name, role, settings=settings))

    def _judged(self, name: str, execution: Execution) -> Path:
        if not execution.ok:
            raise Ended(Verdict(Outcome.ERROR, f"{name}: {execution.problem}{_last(execution)}"))
        self._prove_distinct()
        return execution.trace

    def execute(
        self,
        name: str,
        role: str,
        *,
        recorded: bool = True,
        settings: Settings | None = None,
        added: Mapping[str, str] | None = None,
    ) -> Execution:
        """Run the command of a role under a name, whatever comes of it.

        Args:
            name: Names its folder, its trace and its logs.
            role: Whose command it is.
            recorded: Whether it is recorded.
            settings: What is recorded; None for what the case says.
            added: Further variables for its environment.

        Raises:
            Ended: It cannot be run at all.
        """
        if self._stop.is_set():
            raise Ended(Verdict(Outcome.ERROR, f"interrupted before {name} ran"))
        work = self._folder / name
        work.mkdir()
        folders = {**self._folders, "work": work}
        cwd = folders["root"] / expanded(self.case.cwd, folders)
        if not cwd.is_dir():
            raise Ended(Verdict(Outcome.ERROR, f"cwd: there is no folder {cwd}"))
        words = [expanded(word, folders) for word in self.case.commands[role]]
        environment = {**_environment(self.case.environment, folders), **(added or {})}
        where = _Where(self._folder / f"{name}.trace", cwd, environment)
        try:
            chosen = (settings or self.case.settings) if recorded else None
            execution = self._run(words, where, chosen)
        except (OSError, TraceparityError) as error:
            raise Ended(Verdict(Outcome.ERROR, f"{name}: {error}")) from error
        self.played.append(Played(name, execution))
        return execution

    def folder_of(self, name: str) -> Path:
        """A folder of the case for something else that belongs to a run."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _run(self, words: list[str], where: "_Where", settings: Settings | None) -> Execution:
        timeout = self.case.timeout
        if settings is not None:
            return run_recorded(
                words, out=where.out, cwd=where.cwd, env=where.environment, timeout=timeout,
                settings=settings, stop=self._stop,
            )  # fmt: skip
        return run_plain(
            words, out=where.out, cwd=where.cwd, env=where.environment, timeout=timeout,
            stop=self._stop,
        )  # fmt: skip

    def expect_files(self, role: str, of: str) -> None:
        """See that the files which a command names in another one's folder are there.

        A command that finds no checkpoint may well begin from scratch and say nothing.

        Raises:
            Ended: One is missing.
        """
        for word in self.case.commands[role]:
            whole = _named_alone(of, word)
            for path in [whole] if whole else re.findall(rf"\{{{of}\}}[\w./=+@%-]*", word):
                readings = [path] if whole else [path.rstrip("."), *_longer(path, word)]
                if not any(Path(expanded(one, self._folders)).exists() for one in readings):
                    reason = f"{role} names {path}, which {of} did not write"
                    raise Ended(Verdict(Outcome.ERROR, reason))

    def mentions(self, role: str, placeholder: str) -> bool:
        """Whether a command, or the environment of all, names a folder."""
        words = (*self.case.commands[role], *self.case.environment.values())
        return any(f"{{{placeholder}}}" in word for word in words)

    def _prove_distinct(self) -> None:
        """See that no process trained for two commands: a resume must start afresh."""
        for one, other in itertools.combinations(self.played, 2):
            if same := set(one.execution.processes) & set(other.execution.processes):
                pid = min(same).pid
                reason = f"{one.role} and {other.role} were recorded by one process, {pid}"
                raise Ended(Verdict(Outcome.ERROR, reason))


def _environment(added: Mapping[str, str], folders: Mapping[str, Path]) -> dict[str, str]:
    return {name: expanded(value, folders) for name, value in added.items()}


def _named_alone(of: str, word: str) -> str:
    """The path in the folder of a command, spaces and all, where the word is no more than that.

    As ``--resume={save}/step 4/last.pt``, and not as in a list, or a script for a shell.
    """
    found = re.fullmatch(rf"(?:[\w.+-]*=)?(\{{{of}\}}/[^,;:&|<>{{}}'\"]*)", word)
    return "" if found is None or re.search(r"\s-", word) else found[1]


def _longer(path: str, word: str) -> list[str]:
    """What a path may also be: a name with spaces or commas, in a word or in a shell script."""
    try:
        words = [word, *shlex.split(word)]
    except ValueError:
        words = [word]
    return [one[one.index(path) :] for one in words if path in one]


def _last(execution: Execution) -> str:
    """The last line of stderr, which mostly says why."""
    lines = [line.strip() for line in execution.stderr_tail.splitlines() if line.strip()]
    return f"; the last line of its stderr: {lines[-1]}" if lines else ""
