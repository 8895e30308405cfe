"""Tensors and plain values of several micro-batches, put together on both sides."""

from collections.abc import Mapping

import numpy as np

from traceparity.differ.batch_contents import BatchContents
from traceparity.differ.left_out import LeftOut
from traceparity.differ.metrics import widened
from traceparity.differ.observation import numpy_dtype
from traceparity.differ.window_rows import Group, WindowRows
from traceparity.differ.window_side import Both, Shape
from traceparity.tracefmt.records import Phase, Site

_MOST_ADDED = 1 << 16
"""Elements up to which gradients are added up."""


class TensorJoin:
    """Puts groups together: what one side cannot do is left out on both."""

    def __init__(self, contents: Mapping[str, BatchContents], *, free: bool) -> None:
        """Take what digests of samples tell, and whether the order of samples is free."""
        self._contents = contents
        self._free = free

    def join(self, site: Site, both: Both) -> LeftOut | None:
        """Put a group together; else why that cannot be."""
        if any(len(group.rows) != side.window.count for side, group in both):
            return LeftOut.CALLS
        if site.phase == Phase.BACKWARD and _of_no_sample(both):
            return self._add_up(both)
        if _same_everywhere(both):
            for side, group in both:
                side.take(group)
            return None
        if not all(
            side.window.is_tensor(row) for side, group in both for row in group.rows.values()
        ):
            return LeftOut.PLAIN
        shapes = [_joined_shape(side.window, group) for side, group in both]
        if shapes[0] is None or shapes[1] is None or shapes[0][1:] != shapes[1][1:]:
            return LeftOut.SHAPE
        if shapes[0] != shapes[1] and not all(
            shape and side.window.sizes and shape[0] == sum(side.window.sizes)
            for (side, _), shape in zip(both, shapes, strict=True)
        ):
            # Dimension 0 counts something else than samples.
            return LeftOut.SHAPE
        if not self._free and self._concatenate(both, [shapes[0], shapes[1]]):
            return None
        if site.phase == Phase.DATA and self._by_samples(both, [shapes[0], shapes[1]], site):
            return None
        return LeftOut.ORDER if self._free else LeftOut.VALUES

    def _add_up(self, both: Both) -> LeftOut | None:
        """Gradients of what belongs to no sample add up, as those of parameters do."""
        sums = []
        for side, group in both:
            arrays = [side.window.array(row) for row in group.rows.values()]
            dtype = numpy_dtype(side.window.dtype(group.first))
            if dtype is None or any(array is None or array.size > _MOST_ADDED for array in arrays):
                return LeftOut.VALUES
            total = np.sum([widened(array) for array in arrays if array is not None], axis=0)
            with np.errstate(all="ignore"):
                sums.append(np.asarray(total).astype(dtype).tobytes())
        for (side, group), data in zip(both, sums, strict=True):
            if len(group.rows) == 1:
                side.take(group)
            else:
                side.rows.computed(group.first, group.call, data, side.window.dtype(group.first))
        return None

    def _concatenate(self, both: Both, shapes: list[Shape]) -> bool:
        """Put values one after the other; False where too little was kept to judge them."""
        if not all(len(group.rows) == 1 or side.can_join(group) for side, group in both):
            return False
        if not all(side.can_join(group) for side, group in both):
            # A digest against one made from values: they are equal, or it cannot be known.
            digests = [
                side.digest(group, shape) for (side, group), shape in zip(both, shapes, strict=True)
            ]
            if digests[0] != digests[1]:
                return False
        for (side, group), shape in zip(both, shapes, strict=True):
            side.join(group, shape)
        return True

    def _by_samples(self, both: Both, shapes: list[Shape], site: Site) -> bool:
        """Judge a leaf of a batch by the digests of its samples; False where they do not tell."""
        contents = self._contents.get(site.component)
        if contents is None or shapes[0][0] != len(contents.reference):
            return False
        prints = contents.fingerprints(both[0][0].window.dtype(both[0][1].first))
        if prints is None:
            return False
        for (side, group), shape, digest in zip(both, shapes, prints, strict=True):
            side.rows.fingerprint(group.first, group.call, digest, shape)
        return True


def _of_no_sample(both: Both) -> bool:
    """Whether tensors have one shape on both sides, however many samples there are."""
    rows = [(side.window, row) for side, group in both for row in group.rows.values()]
    if not all(window.is_tensor(row) for window, row in rows):
        return False
    shapes = {window.shape(row) for window, row in rows}
    sizes = [side.window.sizes for side, _ in both]
    return shapes == {()} or (len(shapes) == 1 and sizes[0] != sizes[1])


def _same_everywhere(both: Both) -> bool:
    """Whether each side has one value in all micro-batches, and both have one shape."""
    forms = set()
    for side, group in both:
        window = side.window
        digests = window.columns.digest[list(group.rows.values())]
        if (digests != digests[0]).any():
            return False
        forms.add(window.shape(group.first) if window.is_tensor(group.first) else None)
    return len(forms) == 1


def _joined_shape(window: WindowRows, group: Group) -> Shape | None:
    """The shape of the tensors one after the other; None where they do not fit together."""
    shapes = [window.shape(row) for row in group.rows.values()]
    dtypes = {window.dtype(row) for row in group.rows.values()}
    if not all(shapes) or len({shape[1:] for shape in shapes}) > 1 or len(dtypes) > 1:
        return None
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])
