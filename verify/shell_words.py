"""Words that only a shell understands, in a command that none runs."""

import re
import shlex
from collections.abc import Sequence

_OPERATORS = ("|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>>", "&>", "2>&1", "1>&2")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def only_for_a_shell(text: str | Sequence[str]) -> str:
    """What of a command only a shell would understand, with the remedy; empty where nothing is.

    Args:
        text: The command. In a text an operator may be quoted, and is a word as any other then; the
            words of a list are taken as they are, but for the first.

    Raises:
        ValueError: The text cannot be split into words.
    """
    words = shlex.split(text) if isinstance(text, str) else list(text)
    if words and (found := _VARIABLE.fullmatch(words[0])):
        name = found[1]
        return (
            f'no shell runs it, which {name}=... is for; write environment = {{ {name} = "..." }}'
        )
    for word in _as_written(text) if isinstance(text, str) else ():
        operator = word if word in _OPERATORS else ";" if word.endswith(";") else ""
        if operator:
            return f'no shell runs it, which {operator} is for; write ["bash", "-c", "..."]'
    return ""


def _as_written(text: str) -> list[str]:
    """The words of a text with their quotes."""
    try:
        return shlex.split(text, posix=False)
    except ValueError:
        # Quotes inside of words, which this way of splitting does not know.
        return []
