"""The layout of text reports: a headline, rows of label and text, bullets, in 80 columns."""

import textwrap
from collections.abc import Callable, Sequence

from traceparity.differ.result import Outcome

WIDTH = 80
_LABEL = 13
_COLOURS = {"PASS": "32;1", "FAIL": "31;1", "ABSTAIN": "33;1", "ERROR": "31;1"}

Paint = Callable[[str, str], str]


def painter(*, colour: bool) -> Paint:
    """What puts a text in a terminal's colours, or leaves it as it is."""
    return (lambda text, code: f"\x1b[{code}m{text}\x1b[0m") if colour else (lambda text, _: text)


def headline(outcome: Outcome, sentence: str, paint: Paint) -> list[str]:
    """The outcome and what it rests on."""
    sentence = sentence[:1].upper() + sentence[1:].removesuffix(".") + "."
    word = outcome.value
    lines = textwrap.wrap(f"{word}  {sentence}", WIDTH, subsequent_indent="  ")
    return [paint(word, _COLOURS[word]) + lines[0][len(word) :], *lines[1:]]


def row(label: str, text: str, paint: Paint) -> list[str]:
    """A label and its text, which may go on in further lines."""
    lines = textwrap.wrap(text, WIDTH - _LABEL, break_long_words=False) or [""]
    return [
        f"  {paint(label.ljust(_LABEL - 2), '1') if not index else ' ' * (_LABEL - 2)}{line}"
        for index, line in enumerate(lines)
    ]


def bullets(texts: Sequence[str]) -> list[str]:
    """A list of sentences."""
    return [
        line
        for text in texts
        for line in textwrap.wrap(
            text,
            WIDTH,
            initial_indent="  - ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def section(title: str, texts: Sequence[str], paint: Paint) -> list[str]:
    """A title over a list of sentences; nothing where there are none."""
    return [paint(title, "1"), *bullets(texts)] if texts else []
