"""Contents of batches whose values were not kept, told by the digests of their samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import xxhash

from traceparity.differ.window_rows import DIGESTS, WindowRows
from traceparity.tracefmt.records import Phase
from traceparity.tracefmt.rows import scalar_bytes

Order = Callable[[list[Any] | None], list[Any] | None]


@dataclass(frozen=True, slots=True)
class BatchContents:
    """The digests of all samples that a loader gave to a window, of reference and target.

    Attributes:
        reference: Those of the reference.
        target: Those of the target.
        inexact: Whether the batches hold floats, which may differ within a tolerance.
    """

    reference: list[Any]
    target: list[Any]
    inexact: bool

    @property
    def rearranged(self) -> bool:
        """Whether it is plain that the samples are others or in another order."""
        return self.reference != self.target and (
            len(self.reference) != len(self.target) or sorted(self.reference) == sorted(self.target)
        )

    def fingerprints(self, dtype: str) -> tuple[bytes, bytes] | None:
        """Digests for a leaf of the batch; None where it may be equal all the same.

        They are equal where the contents of all samples are.
        """
        exact = not dtype.startswith(("float", "bfloat", "complex"))
        if self.reference != self.target and exact and self.inexact:
            return None
        left, right = (
            xxhash.xxh3_128_digest(scalar_bytes(listed)) for listed in (self.reference, self.target)
        )
        return left, right


def batch_contents(
    reference: WindowRows, target: WindowRows, order: Order
) -> dict[str, BatchContents]:
    """What digests of samples tell, by loader.

    A loader is left out where one side has no digests, or where samples were padded to other
    lengths: their digests say nothing then.
    """
    listed = [_listed(window) for window in (reference, target)]
    found = {}
    for loader in listed[0].keys() & listed[1].keys():
        left, right = (order(each[loader]) for each in listed)
        forms = [
            _leaf_forms(window, loader, len(each[loader]))
            for window, each in zip((reference, target), listed, strict=True)
        ]
        if left and right and forms[0] and forms[0] == forms[1]:
            inexact = any(
                dtype.startswith(("float", "bfloat", "complex")) for dtype, _ in forms[0].values()
            )
            found[loader] = BatchContents(left, right, inexact)
    return found


def _listed(window: WindowRows) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for site, group in window.of_phase(Phase.DATA, DIGESTS):
        if len(group.rows) == window.count:
            found.setdefault(site.component, []).extend(window.joined_list(group) or [])
    return found


def _leaf_forms(
    window: WindowRows, loader: str, samples: int
) -> dict[tuple[int, int], tuple[str, tuple[int, ...]]] | None:
    """Dtype and shape of a sample in each leaf; None where micro-batches disagree."""
    forms = {}
    for site, group in window.of_phase(Phase.DATA):
        if site.component != loader or not window.is_tensor(group.first):
            continue
        shapes = [window.shape(row) for row in group.rows.values()]
        if not all(shapes) or sum(shape[0] for shape in shapes) != samples:
            continue
        each = {(window.dtype(row), window.shape(row)[1:]) for row in group.rows.values()}
        if len(each) != 1:
            return None
        forms[group.site, group.call] = each.pop()
    return forms
