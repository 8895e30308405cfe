"""Reading case files (TOML): every mistake is told with file, line and key."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from traceparity.differ.policy import Policy
from traceparity.differ.policy_file import policy_from, read_policy
from traceparity.differ.preset import PRESETS
from traceparity.differ.toml_tables import Checks, Inner, TomlFile, listed, read_text
from traceparity.recorder.settings import Settings, SettingsError, settings_from
from traceparity.tracefmt.errors import TraceparityError
from traceparity.tracefmt.location import Location, location
from traceparity.verify.case import DEFAULT_TIMEOUT, ROLES, Archive, Case, CaseFile, placeholders
from traceparity.verify.errors import CaseFileError
from traceparity.verify.shell_words import only_for_a_shell

BLANK = "???"
"""What stands in a case file where something is still to be filled in."""
_SHARED = ("timeout", "environment", "policy", "cwd", "record")
_OWN = {
    "resume": ("step_offset", "repeat_reference"),
    "accumulation": ("microbatches", "loss", "repeat_reference"),
    "compare": ("repeat_reference",),
    "repeat": ("times",),
    "coverage": ("coverage", "laws"),
    "check": ("coverage", "laws", "invariants", "nonfinite"),
    "unchanged": ("stdout",),
}
"""The keys that cases of a kind have beside their commands and those that all have."""
_DEFAULTS = (*_SHARED, "repeat_reference")
_LOSS = ("sum", "mean", "weighted", "skip")


def read_cases(path: Path) -> CaseFile:
    """The cases that a file declares.

    Raises:
        CaseFileError: The file cannot be read, is no TOML, has blanks left, or declares something
            impossible.
        PolicyError: So does a policy file that it names.
    """
    text = read_text(path, "case file", CaseFileError)
    file = TomlFile(str(path), text, CaseFileError)
    return CaseFile(path, _FileParser(file, path.parent).cases())


class _FileParser(Checks):
    """Checks the tables of one file."""

    def __init__(self, file: TomlFile, folder: Path) -> None:
        super().__init__(file)
        self._file = file
        self._folder = folder

    def cases(self) -> tuple[Case, ...]:
        tables = self._file.tables
        for name in tables:
            if name not in ("case", "defaults"):
                raise self.error(name, "", "unknown table; known are case, defaults")
        defaults, found = tables.get("defaults", {}), tables.get("case", [])
        if not isinstance(defaults, dict):
            raise self.error("defaults", "", "must be a table")
        self.known("defaults", defaults, _DEFAULTS)
        if not isinstance(found, list) or not found:
            raise self.error("case", "", "needed: one table [[case]] or more")
        cases = []
        for number, table in enumerate(found):
            cases.append(self._case(f"case[{number}]", table, defaults))
            self._is_new(cases)
        return tuple(cases)

    def _case(self, place: str, table: Any, defaults: Mapping[str, Any]) -> Case:
        if not isinstance(table, dict):
            raise self.error(place, "", "must be a table")
        for key, value in table.items():
            for text in _texts(value):
                if BLANK in text:
                    hint = text.replace(BLANK, "").strip(" :")
                    raise self.error(place, key, f"still to be filled in: {hint or key}")
        kind = self.word(place, table, "kind", tuple(ROLES))
        if not kind:
            raise self.error(place, "kind", f"needed: one of {listed(tuple(ROLES))}")
        allowed = {"name", "kind", *_SHARED, *ROLES[kind], *_OWN[kind]}
        for key in table:
            if key not in allowed:
                raise self.error(place, key, _unknown(key, kind, allowed))
        inherited = {key: value for key, value in defaults.items() if key in allowed}
        return _CaseParser(self._file, self._folder, place, kind, {**inherited, **table}).case(
            defaults.get("environment", {})
        )

    def _is_new(self, cases: list[Case]) -> None:
        *others, case = cases
        for other in others:
            if other.folder_name.lower() == case.folder_name.lower():
                raise self.error(
                    f"case[{len(others)}]", "name", f"{case.name!r} is too like {other.name!r}"
                )


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _texts(item)]


def _unknown(key: str, kind: str, allowed: set[str]) -> str:
    kinds = [each for each in ROLES if key in ROLES[each] or key in _OWN[each]]
    if kinds:
        return f'goes with kind = "{listed(tuple(kinds))}", not with "{kind}"'
    return f"unknown key; known are {listed(allowed)}"


class _CaseParser(Checks):
    """Checks one case."""

    def __init__(
        self, file: TomlFile, folder: Path, place: str, kind: str, table: Mapping[str, Any]
    ) -> None:
        super().__init__(file)
        self._file = file
        self._folder = folder
        self._place = place
        self._kind = kind
        self._table = table

    def case(self, environment: Any) -> Case:
        name = self._table.get("name")
        if not isinstance(name, str) or not name.strip():
            raise self._mistake("name", "needed: a name for people")
        if not name.strip().isprintable():
            raise self._mistake("name", "must be one line, without control characters")
        archive, commands = self._commands()
        policy = self._policy()
        return Case(
            name=name.strip(),
            kind=self._kind,
            commands=commands,
            policy=policy,
            archive=archive,
            repetitions=self._repetitions(archive, commands),
            measured=type(self._table.get("repeat_reference")) is int,
            finite=self._kind == "check"
            and self.word(self._place, self._table, "nonfinite", ("fail", "allow")) != "allow",
            invariants=self._file_named("invariants"),
            stdout=self.word(self._place, self._table, "stdout", ("compare", "ignore")) != "ignore",
            timeout=self._timeout(),
            environment={
                **self._environment(environment),
                **self._environment(self._table.get("environment", {})),
            },
            cwd=self._cwd(),
            settings=self._settings(archive, policy),
        )

    def _mistake(self, key: str, problem: str) -> TraceparityError:
        return self.error(self._place, key, problem)

    # -- commands -----------------------------------------------------------------------------

    def _commands(self) -> tuple[Archive | None, dict[str, tuple[str, ...]]]:
        archive, commands, before = None, {}, ["work", "root"]
        for role in ROLES[self._kind]:
            value = self._table.get(role)
            if role == "reference" and isinstance(value, dict):
                archive = self._archive(value)
                if (value := value.get("command")) is None:
                    continue
            commands[role] = self._words(role, value, before)
            before.append(role)
        return archive, commands

    def _words(self, role: str, value: Any, before: list[str]) -> tuple[str, ...]:
        if value is None:
            raise self._mistake(role, "needed: a command")
        given = value
        if isinstance(value, str):
            try:
                value = shlex.split(value)
            except ValueError as problem:
                raise self._mistake(role, f"cannot be split into words: {problem}") from None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self._mistake(role, "must be a text or a list of words")
        if not value or not value[0]:
            raise self._mistake(role, "is empty")
        if any("\0" in word for word in value):
            raise self._mistake(role, "holds a NUL character")
        if for_a_shell := only_for_a_shell(given):
            raise self._mistake(role, for_a_shell)
        self._placed(role, " ".join(value), before)
        return tuple(value)

    def _placed(self, key: str, text: str, known: list[str]) -> None:
        for name in placeholders(text):
            if name not in known:
                braced = listed(tuple(f"{{{each}}}" for each in known))
                raise self._mistake(key, f"{{{name}}} is not known here; there are {braced}")

    def _archive(self, table: Mapping[str, Any]) -> Archive:
        place = Inner(self._file, self._place, "reference")
        checks = Checks(place)
        checks.known("", table, ("trace", "command", "repeat", "elsewhere"))
        if "trace" not in table:
            raise checks.error("", "trace", "needed: a trace that was recorded before")
        for key in ("trace", "repeat"):
            if not isinstance(table.get(key, "-"), str) or not table.get(key, "-"):
                raise checks.error("", key, "must be the path of a trace")
        elsewhere = None
        if "elsewhere" in table:
            elsewhere = self._aligned(self._read_policy(table["elsewhere"], "reference"))
        return Archive(
            trace=self._located(table["trace"]),
            repeat=self._located(table["repeat"]) if "repeat" in table else None,
            elsewhere=elsewhere,
        )

    def _located(self, text: str) -> Location:
        found = location(text)
        return self._folder / found if isinstance(found, Path) else found

    def _repetitions(self, archive: Archive | None, commands: Mapping[str, Any]) -> int:
        if self._kind == "repeat":
            return self._at_least_two("times") if "times" in self._table else 2
        value = self._table.get("repeat_reference", False)
        if isinstance(value, bool):
            count = 1 + value
        else:
            count = self._at_least_two("repeat_reference", "true, false or ")
        if count > 1 and archive:
            raise self._mistake(
                "repeat_reference",
                "an archived reference is not run again; name a second recording of it with"
                " reference = { trace = ..., repeat = ... }",
            )
        return count

    def _at_least_two(self, key: str, also: str = "") -> int:
        value = self._table[key]
        if type(value) is not int or value < 2:
            raise self._mistake(key, f"must be {also}a whole number from 2")
        return value

    # -- the relation -------------------------------------------------------------------------

    def _policy(self) -> Policy:
        default = "accumulation" if self._kind == "accumulation" else "exact"
        policy = self._aligned(self._read_policy(self._table.get("policy", default), "policy"))
        for key in ("coverage", "laws"):
            if key in self._table:
                table = self._table[key]
                if not isinstance(table, dict):
                    raise self._mistake(key, "must be a table")
                declared = policy_from({key: table}, Inner(self._file, self._place, key))
                policy = replace(policy, **{key: getattr(declared, key)})
        if self._kind == "coverage" and policy.coverage is None:
            raise self._mistake("coverage", "needed: a table as [coverage] of a policy file")
        return policy

    def _read_policy(self, value: Any, key: str) -> Policy:
        if isinstance(value, dict):
            return policy_from(value, Inner(self._file, self._place, key))
        if not isinstance(value, str) or not value:
            raise self._mistake(key, f"must be a policy file, a table, or one of {listed(PRESETS)}")
        file = self._folder / value
        if value not in PRESETS and not file.is_file():
            what = f"{file} is no file" if file.exists() else f"there is no file {file}"
            raise self._mistake(key, f"{what}; presets are {listed(PRESETS)}")
        return read_policy(Path(value) if value in PRESETS and not file.is_file() else file)

    def _aligned(self, policy: Policy) -> Policy:
        """The policy with the alignment that the kind of case and its keys declare."""
        align, kind = policy.align, self._kind
        if kind == "resume":
            offset = self._table.get("step_offset", "auto")
            if offset != "auto":
                offset = self.natural(self._place, self._table, "step_offset", 'or "auto"')
            declared = align.step_offset if offset == "auto" else offset
            align = replace(align, kind="resume", step_offset=declared)
        elif kind == "accumulation":
            align = replace(align, kind="accumulation")
            if "microbatches" in self._table:
                table = {"kind": kind, "microbatches": self._table["microbatches"]}
                inner = Inner(self._file, self._place, "microbatches")
                counts = policy_from({"align": table}, inner).align.microbatches
                align = replace(align, microbatches=counts)
            if loss := self.word(self._place, self._table, "loss", _LOSS):
                align = replace(align, loss=loss)
            if align.microbatches is None:
                raise self._mistake("microbatches", "needed: { reference = N, target = N }")
        elif kind == "repeat":
            align = replace(align, kind="start", step_offset=None)
        return replace(policy, align=align)

    def _file_named(self, key: str) -> Path | None:
        value = self._table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise self._mistake(key, "must be the path of a file")
        file = self._folder / value
        if file.exists() and not file.is_file():
            raise self._mistake(key, f"{file} is no file")
        return file

    # -- how it runs --------------------------------------------------------------------------

    def _timeout(self) -> float:
        value = self._table.get("timeout", DEFAULT_TIMEOUT)
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            raise self._mistake("timeout", "must be a number of seconds above 0")
        return float(value)

    def _environment(self, table: Any) -> dict[str, str]:
        if not isinstance(table, dict):
            raise self._mistake("environment", "must be a table of names and texts")
        for name, value in table.items():
            if not name or "=" in name or "\0" in name:
                raise self._mistake("environment", f"{name!r} is no name of a variable")
            if not isinstance(value, str) or "\0" in value:
                raise self._mistake("environment", f"{name} must be a text")
            self._placed("environment", value, ["work", "root"])
        return dict(table)

    def _cwd(self) -> str:
        value = self._table.get("cwd", "{root}")
        if not isinstance(value, str) or not value:
            raise self._mistake("cwd", "must be a folder")
        self._placed("cwd", value, ["work", "root"])
        return value

    def _settings(self, archive: Archive | None, policy: Policy) -> Settings:
        table = self._table.get("record", {})
        if not isinstance(table, dict):
            raise self._mistake("record", "must be a table of capture settings")
        base = Settings()
        if archive and all(rule.exact or rule.ignore for rule in _rules(policy, archive)):
            # An archive is kept: fingerprints are all that an exact comparison needs.
            base = Settings(capture="digest")
        line = self._file.line(self._place, "record")
        origin = f"{self._file.path}:{line}: {self._place}.record"
        try:
            return settings_from(table, origin, base)
        except SettingsError as problem:
            raise CaseFileError(str(problem)) from None


def _rules(policy: Policy, archive: Archive) -> list[Any]:
    elsewhere = archive.elsewhere
    return [*policy.rules, *(elsewhere.rules if elsewhere else ())]
