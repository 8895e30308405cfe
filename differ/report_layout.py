"""The layout of text reports: a headline, rows of label and text, bullets; at most 80 columns."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from traceparity.differ.result import Outcome

WIDTH = 80
_LABEL = 13
_COLOURS = {"PASS": "32;1", "FAIL": "31;1", "ABSTAIN": "33;1", "ERROR": "31;1"}


@dataclass(frozen=True, slots=True)
class Paint:
    """How a report is set.

    Attributes:
        colour: Whether it has a terminal's colours.
        width: Columns.
    """

    colour: bool = False
    width: int = WIDTH

    def __call__(self, text: str, code: str) -> str:
        """A text in a colour, or as it is."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text


def painter(*, colour: bool, width: int = WIDTH) -> Paint:
    """What puts a text in a terminal's colours, or leaves it as it is."""
    return Paint(colour, width)


def headline(outcome: Outcome, sentence: str, paint: Paint) -> list[str]:
    """The outcome and what it rests on."""
    sentence = sentence[:1].upper() + sentence[1:].removesuffix(".") + "."
    word = outcome.value
    lines = textwrap.wrap(f"{word}  {sentence}", paint.width, subsequent_indent="  ")
    return [paint(word, _COLOURS[word]) + lines[0][len(word) :], *lines[1:]]


def row(label: str, text: str, paint: Paint) -> list[str]:
    """A label and its text, which may go on in further lines."""
    width = paint.width - _LABEL
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [
        f"  {paint(label.ljust(_LABEL - 2), '1') if not index else ' ' * (_LABEL - 2)}{line}"
        for index, line in enumerate(lines)
    ]


def bullets(texts: Sequence[str], width: int = WIDTH) -> list[str]:
    """A list of sentences."""
    return [
        line
        for text in texts
        for line in textwrap.wrap(
            text,
            width,
            initial_indent="  - ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def section(title: str, texts: Sequence[str], paint: Paint) -> list[str]:
    """A title over a list of sentences; nothing where there are none."""
    return [paint(title, "1"), *bullets(texts, paint.width)] if texts else []
