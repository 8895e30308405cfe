"""Tables of a TOML file that people write: every mistake is told with file, line and key."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from traceparity.differ.errors import PolicyError
from traceparity.tracefmt.errors import TraceparityError
from traceparity.tracefmt.text_file import read_text_file


class Mistakes(Protocol):
    """Turns what is wrong at a place into an error."""

    def error(self, place: str, key: str, problem: str) -> TraceparityError:
        """The error to raise.

        Args:
            place: The table, such as ``align`` or ``compare[2]``.
            key: The key in it; empty for the table as a whole.
            problem: What is wrong.
        """


class TomlFile:
    """A file and its text, which is known only to name lines.

    Attributes:
        path: The file as it was named.
        tables: What it holds.
    """

    def __init__(self, path: str, text: str, error: type[TraceparityError] = PolicyError) -> None:
        """Parse the text.

        Args:
            path: Names the file in messages.
            text: Its text.
            error: Class of the errors.

        Raises:
            TraceparityError: An ``error``: the text is no TOML.
        """
        self.path = path
        # Editors of Windows put a mark before the first character.
        text = text.removeprefix("\ufeff")
        self._lines = text.splitlines()
        self._error = error
        import tomllib  # takes time to import, and most commands are given no file

        try:
            self.tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise error(f"{path}: not a TOML file: {problem}") from problem
        except RecursionError as problem:
            raise error(f"{path}: its values are nested too deeply") from problem

    def error(self, place: str, key: str, problem: str) -> TraceparityError:
        """The error that tells a problem with file, line and key."""
        name = f"{place}.{key}" if key else place
        return self._error(f"{self.path}:{self.line(place, key)}: {name}: {problem}")

    def line(self, place: str, key: str) -> int:
        """The line of a key, found in the text since tomllib does not tell; 1 if it is unusual."""
        table, _, number = place.rstrip("]").partition("[")
        wanted, current, seen, header_line = int(number or 0), "", -1, 1
        for line, text in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[\[?\s*([\w.\"-]+)\s*\]\]?", text):
                current = header[1].strip('"')
                seen += current == table
                inside = current == table and (not number or seen == wanted)
                header_line = line if inside else header_line
            elif current == table and (not number or seen == wanted) and _sets(key, text):
                return line
        return header_line


def _sets(key: str, text: str) -> bool:
    """Whether a line of a file sets a key."""
    return bool(key) and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", text) is not None


class Inner:
    """Tables that stand inside another one: their mistakes are told at the key that holds them."""

    def __init__(self, outer: Mistakes, place: str, key: str) -> None:
        """Take where the tables stand: at ``key`` of ``place`` of ``outer``."""
        self._outer = outer
        self._place = place
        self._key = key

    def error(self, place: str, key: str, problem: str) -> TraceparityError:
        """The error, at the outer key, with the inner one in its message."""
        inner = ".".join(part for part in (place, key) if part)
        return self._outer.error(
            self._place, self._key, f"{inner}: {problem}" if inner else problem
        )


class Checks:
    """Checks of single values that all such files share."""

    def __init__(self, mistakes: Mistakes) -> None:
        """Take who tells of mistakes."""
        self.error = mistakes.error

    def known(self, place: str, table: Mapping[str, Any], keys: Collection[str]) -> None:
        """Every key of a table is a known one."""
        for key in table:
            if key not in keys:
                raise self.error(place, key, f"unknown key; known are {listed(keys)}")

    def word(self, place: str, table: Mapping[str, Any], key: str, words: tuple[str, ...]) -> str:
        """One of some words; empty where the key is left out."""
        value = table.get(key, "")
        if key in table and value not in words:
            raise self.error(place, key, f"must be one of {listed(words)}, not {value!r}")
        return str(value)

    def natural(self, place: str, table: Mapping[str, Any], key: str, also: str = "") -> int:
        """A whole number from 0."""
        value = table[key]
        if type(value) is not int or value < 0:
            raise self.error(place, key, f"must be a whole number from 0 {also}".rstrip())
        return value

    def limit(self, place: str, table: Mapping[str, Any], key: str) -> float:
        """A finite number from 0."""
        value = table[key]
        if type(value) not in (int, float) or not 0 <= value < float("inf"):
            raise self.error(place, key, "must be a finite number from 0")
        return float(value)

    def flag(self, place: str, table: Mapping[str, Any], key: str) -> bool:
        """True or false; false where the key is left out."""
        value = table.get(key, False)
        if not isinstance(value, bool):
            raise self.error(place, key, "must be true or false")
        return value


def read_text(path: Path, what: str, error: type[TraceparityError], hint: str = "") -> str:
    """The text of a file.

    Raises:
        TraceparityError: An ``error``: it cannot be read as ``what``.
    """
    try:
        return read_text_file(path)
    except UnicodeDecodeError as problem:
        reason = (
            f"it is no text (byte {problem.start} is none in UTF-8), and a {what} is a TOML file"
        )
        raise error(f"{path}: cannot read the {what}: {reason}") from problem
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise error(f"{path}: cannot read the {what}: {reason}{hint}") from problem


def listed(words: Collection[str]) -> str:
    """Words with commas between them, sorted where they have no order of their own."""
    return ", ".join(sorted(words) if isinstance(words, set | frozenset | dict) else words)
