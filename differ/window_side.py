"""One side of a pair of windows: what it has, and what it comes to."""

from typing import NamedTuple

from traceparity.differ.joined_rows import JoinedRows
from traceparity.differ.joined_trace import JoinedTrace
from traceparity.differ.window_rows import Group, WindowRows
from traceparity.tracefmt.tensor_digest import KIND

Shape = tuple[int, ...]


class Half(NamedTuple):
    """One window of a pair.

    Attributes:
        trace: Its trace.
        window: Its rows as stored.
        scale: What a gradient scaler multiplied its losses by.
    """

    trace: JoinedTrace
    window: WindowRows
    scale: float


class WindowSide:
    """A window, and the rows that it comes to."""

    def __init__(self, half: Half) -> None:
        self.window = half.window
        self.rows = JoinedRows(half.trace, half.window.columns)
        self.scale = half.scale
        capture = half.trace.header.capture
        self.digests_alike = capture.get("digest") == KIND

    def can_join(self, group: Group) -> bool:
        """Whether the tensors of a group can be put together, since all values were kept."""
        return self.digests_alike and all(map(self.window.has_value, group.rows.values()))

    def take(self, group: Group) -> None:
        """Take the first row of a group over."""
        self.rows.take(group.first, group.call)

    def join(self, group: Group, shape: Shape) -> None:
        """Let the tensors of a group follow one another."""
        if len(group.rows) == 1:
            self.take(group)
        else:
            dtype = self.window.dtype(group.first)
            self.rows.joined(list(group.rows.values()), group.call, dtype, shape)

    def digest(self, group: Group, shape: Shape) -> bytes:
        """The digest of the tensors of a group, one after the other."""
        if len(group.rows) == 1:
            return bytes(self.window.columns.digest[group.first])
        dtype = self.window.dtype(group.first)
        return self.rows.joined_digest(list(group.rows.values()), dtype, shape)


Both = list[tuple[WindowSide, Group]]
"""What both sides have of one site, the reference first."""
