"""Numbers for dtypes and shapes that mean the same in both traces."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from traceparity.differ.compare import is_inexact
from traceparity.differ.sites import Ids
from traceparity.differ.step_view import Mask
from traceparity.tracefmt.records import Columns

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


class TypeTable:
    """Compares the dtypes and shapes of two traces by number."""

    def __init__(self, reference: "Trace", target: "Trace") -> None:
        self._reference = reference
        self._target = target
        self._known: dict[tuple[str, int, int], tuple[Ids, Ids]] = {}
        self._rounded: Mask = np.empty(0, np.bool_)

    def same(self, left: Columns, rows: Ids, right: Columns, target_rows: Ids) -> Mask:
        """Which pairs of tensors have one dtype and one shape."""
        dtypes, shapes = self._dtypes, self._shapes
        mask: Mask = dtypes[0][left.dtype[rows]] == dtypes[1][right.dtype[target_rows]]
        mask &= shapes[0][left.shape[rows]] == shapes[1][right.shape[target_rows]]
        return mask

    def inexact(self, left: Columns, rows: Ids) -> Mask:
        """Which tensors of the reference have elements that may be rounded."""
        return self._inexact[left.dtype[rows]]

    @property
    def _inexact(self) -> Mask:
        strings = self._reference.strings
        if len(self._rounded) != len(strings):
            self._rounded = np.array(
                [is_inexact(name.removeprefix("torch.")) for name in strings], np.bool_
            )
        return self._rounded

    @property
    def _dtypes(self) -> tuple[Ids, Ids]:
        return self._numbered("strings", self._reference.strings, self._target.strings)

    @property
    def _shapes(self) -> tuple[Ids, Ids]:
        return self._numbered("shapes", self._reference.shapes, self._target.shapes)

    def _numbered(
        self, name: str, left: Sequence[Hashable], right: Sequence[Hashable]
    ) -> tuple[Ids, Ids]:
        # Tables grow when rows of micro-batches are put together.
        key = name, len(left), len(right)
        if key not in self._known:
            self._known[key] = _numbered(left, right)
        return self._known[key]


def _numbered(left: Sequence[Hashable], right: Sequence[Hashable]) -> tuple[Ids, Ids]:
    """Numbers for the entries of two tables, equal where the entries are."""
    numbers: dict[Hashable, int] = {}
    ids = [
        np.array([numbers.setdefault(item, len(numbers)) for item in table], np.int64)
        for table in (left, right)
    ]
    return ids[0], ids[1]
