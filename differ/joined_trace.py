"""A trace whose updates are told as if each had had one micro-batch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from traceparity.tracefmt.reader import Trace
from traceparity.tracefmt.records import Columns

JOINED = 1 << 62
"""A value offset from here on is no place in a file but the number of a joined value."""


@dataclass(frozen=True, slots=True)
class JoinedColumns(Columns):
    """The rows of a window after its micro-batches were put together.

    Attributes:
        source: The rows as stored.
        parts: For each joined value the rows of ``source`` whose values follow one another in it.
    """

    source: Columns
    parts: tuple[tuple[int, ...], ...]


class JoinedTrace(Trace):
    """Reads like the trace that it is made from, but for what micro-batches came to together.

    Values are put together when somebody asks for them, so that a step needs no more memory.

    Attributes:
        source: The trace as stored.
    """

    def __init__(self, source: Trace, columns: Callable[[int], Columns]) -> None:
        """Take over everything of ``source`` but its rows, which ``columns`` gives by step."""
        vars(self).update(vars(source))
        self.source = source
        self.shapes = list(source.shapes)
        self._columns = columns
        self._shape_ids = {shape: number for number, shape in enumerate(self.shapes)}

    def shape(self, shape: tuple[int, ...]) -> int:
        """The number of a shape, a new one where no tensor of the trace has it."""
        number = self._shape_ids.setdefault(shape, len(self.shapes))
        if number == len(self.shapes):
            self.shapes.append(shape)
        return number

    def columns(self, number: int) -> Columns:
        """The rows of a step, put together."""
        return self._columns(number)

    def value_pieces(self, columns: Columns, row: int) -> Iterator[bytes]:
        """The kept bytes of a row, those of joined rows one after the other."""
        joined = int(columns.value_offset[row]) - JOINED
        if isinstance(columns, JoinedColumns) and joined >= 0:
            for part in columns.parts[joined]:
                yield from self.source.value_pieces(columns.source, part)
        else:
            yield from super().value_pieces(columns, row)
