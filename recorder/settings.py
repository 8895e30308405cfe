"""What to record: the capture settings, from the command line, a file or pyproject.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from traceparity.tracefmt.errors import TraceparityError
from traceparity.tracefmt.globs import glob_matches
from traceparity.tracefmt.records import Phase
from traceparity.tracefmt.text_file import read_text_file

LEVELS = ("digest", "sketch", "values")


class SettingsError(TraceparityError):
    """A capture setting is wrong."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The capture settings.

    Attributes:
        capture: What is kept of tensors: ``digest``, ``sketch`` (with it) or ``values`` (all).
        steps: Steps to record, as half-open ranges; empty for all.
        every: Record each n-th step only.
        phases: Names of the phases to record; empty for all.
        include: Globs over ``phase:component:field``; empty for all.
        exclude: Globs of sites to leave out; wins over ``include``.
        operators: Globs of modules and optimizers whose operators are recorded too; empty for none.
        watch: Dotted names of functions whose calls are recorded too; empty for none.
    """

    capture: str = "sketch"
    steps: tuple[tuple[int, int | None], ...] = ()
    every: int = 1
    phases: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            SettingsError: One is impossible.
        """
        if self.capture not in LEVELS:
            raise SettingsError(f"capture {self.capture!r} is none of {', '.join(LEVELS)}")
        if self.every < 1:
            raise SettingsError(f"every must be 1 or more, not {self.every!r}")
        known = [phase.label for phase in Phase]
        for phase in self.phases:
            if phase not in known:
                raise SettingsError(f"phases: {phase!r} is none of {', '.join(known)}")
        for name in self.watch:
            if "." not in name or not all(part.isidentifier() for part in name.split(".")):
                raise SettingsError(
                    f"watch {name!r}: give package.module.function or package.module.Class.method;"
                    " what the script itself defines is __main__.function"
                )

    def wants_step(self, number: int) -> bool:
        """Whether step ``number`` is recorded."""
        if number % self.every:
            return False
        return not self.steps or any(
            start <= number and (stop is None or number < stop) for start, stop in self.steps
        )

    def wants_site(self, phase: Phase, component: str, field: str) -> bool:
        """Whether the site is recorded; calls that are watched always are."""
        if component.endswith("()") and component[:-2] in self.watch:
            return True
        if self.phases and phase.label not in self.phases:
            return False
        name = f"{phase.label}:{component}:{field}"
        if any(glob_matches(glob, name) for glob in self.exclude):
            return False
        return not self.include or any(glob_matches(glob, name) for glob in self.include)

    def as_data(self) -> dict[str, Any]:
        """The settings as plain data, for the header and the environment of a child."""
        data = asdict(self)
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in data.items()
        }


def parse_steps(text: str) -> tuple[tuple[int, int | None], ...]:
    """Ranges such as ``0:10,500:510``, ``7`` or ``100:``.

    Raises:
        SettingsError: The text is none.
    """
    ranges: list[tuple[int, int | None]] = []
    for part in text.split(","):
        start, colon, stop = part.strip().partition(":")
        try:
            first = int(start or 0) if colon else int(start)
            last = (int(stop) if stop else None) if colon else first + 1
        except ValueError:
            raise SettingsError(f"steps {text!r}: give ranges such as 0:10,500:510") from None
        if first < 0 or (last is not None and last <= first):
            raise SettingsError(f"steps {part!r}: the range is empty")
        ranges.append((first, last))
    return tuple(ranges)


def settings_from(data: Mapping[str, Any], origin: str, base: Settings | None = None) -> Settings:
    """Settings from plain data, over ``base``.

    Raises:
        SettingsError: A key is unknown or a value wrong; the message names ``origin`` and the key.
    """
    known = {field.name for field in fields(Settings)}
    changes: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            raise SettingsError(
                f"{origin}: unknown key {key!r}; known are {', '.join(sorted(known))}"
            )
        changes[key] = _value(key, value, origin)
    try:
        return replace(base or Settings(), **changes)
    except SettingsError as error:
        raise SettingsError(f"{origin}: {error}") from None


def _value(key: str, value: Any, origin: str) -> Any:
    if key == "steps":
        try:
            return parse_steps(value) if isinstance(value, str) else _ranges(value)
        except SettingsError as error:
            raise SettingsError(f"{origin}: {error}") from None
    if key in ("phases", "include", "exclude", "operators", "watch"):
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if not isinstance(value, list | tuple) or not all(isinstance(x, str) for x in value):
            raise SettingsError(f"{origin}: {key} must be a list of strings")
        return tuple(value)
    if key == "every" and (not isinstance(value, int) or isinstance(value, bool)):
        raise SettingsError(f"{origin}: every must be a whole number")
    return value


def _ranges(pairs: Any) -> tuple[tuple[int, int | None], ...]:
    """Ranges as they come from a file; the other way round from `Settings.as_data`."""
    ranges: list[tuple[int, int | None]] = []
    for pair in pairs if isinstance(pairs, list | tuple) else [pairs]:
        match pair:
            case [int(start), int() | None as stop]:
                ranges += parse_steps(f"{start}:{'' if stop is None else stop}")
            case _:
                raise SettingsError(
                    'steps must be a text such as "0:10,500:510" or a list of pairs'
                )
    return tuple(ranges)


def settings_from_file(path: Path) -> Settings:
    """Settings from a TOML file: ``[tool.traceparity]`` of a pyproject.toml, else the whole file.

    Raises:
        SettingsError: The file cannot be read or holds something else.
    """
    try:
        data = tomllib.loads(read_text_file(path))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    if path.name == "pyproject.toml":
        tools = data.get("tool", {})
        data = tools.get("traceparity", {}) if isinstance(tools, dict) else {}
    if not isinstance(data, dict):
        raise SettingsError(f"{path}: tool.traceparity must be a table")
    return settings_from(data, str(path))
