"""Two windows that answer each other, told as if each had had one micro-batch.

What can be put together: sample IDs; tensors that follow one another along dimension 0, as batches,
outputs and the gradients of outputs do; what is the same in every micro-batch; the losses, as the
policy declares. Of accumulated gradients and of buffers the last value counts. The rest is left
out on both sides, with a reason.
"""

import math
from typing import Any, NamedTuple

import xxhash

from traceparity.differ.batch_contents import batch_contents
from traceparity.differ.joined_rows import JoinedRows
from traceparity.differ.joined_trace import JoinedColumns, JoinedTrace
from traceparity.differ.left_out import LeftOut, Tally
from traceparity.differ.policy import Align
from traceparity.differ.sample_leaves import SampleLeaves, counts_beyond, sample_leaves
from traceparity.differ.window_loss import LossRelation
from traceparity.differ.window_rows import DIGESTS, Group, WindowRows
from traceparity.tracefmt.records import Kind, Phase, Site
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


class _Side:
    """A window, the rows that it comes to, and the group that is looked at."""

    def __init__(self, half: Half) -> None:
        self.window = half.window
        self.rows = JoinedRows(half.trace, half.window.columns)
        self.scale = half.scale
        capture = half.trace.header.capture
        self.digests_alike = capture.get("digest") == KIND

    def can_join(self, group: Group) -> bool:
        return self.digests_alike and all(map(self.window.has_value, group.rows.values()))

    def take(self, group: Group) -> None:
        self.rows.take(group.first, group.call)

    def join(self, group: Group, shape: Shape) -> None:
        if len(group.rows) == 1:
            self.take(group)
        else:
            dtype = self.window.dtype(group.first)
            self.rows.joined(list(group.rows.values()), group.call, dtype, shape)

    def digest(self, group: Group, shape: Shape) -> bytes:
        if len(group.rows) == 1:
            return bytes(self.window.columns.digest[group.first])
        dtype = self.window.dtype(group.first)
        return self.rows.joined_digest(list(group.rows.values()), dtype, shape)


class WindowPair:
    """Puts the micro-batches of two windows together."""

    def __init__(self, align: Align, reference: Half, target: Half, left_out: Tally) -> None:
        self._free = align.order == "free"
        self._loss = LossRelation(align)
        self._sides = _Side(reference), _Side(target)
        self._left_out = left_out
        self._contents = batch_contents(reference.window, target.window, self._ordered)

    def join(self) -> tuple[JoinedColumns, JoinedColumns]:
        """The rows of both sides."""
        reference, target = self._sides
        sites = reference.window.sites.sites
        for side in self._sides:
            for row in side.window.outside:
                side.rows.take(row)
        groups = reference.window.groups, target.window.groups
        taken = self._sample_leaves()
        for key in dict.fromkeys((*groups[0], *groups[1])):
            left, right = groups[0].get(key), groups[1].get(key)
            if key in taken:
                continue
            if left is None or right is None:
                self._one_sided(sites[key[0]], left, right)
            elif reason := self._join(sites[key[0]], left, right):
                self._left_out.add(sites[key[0]], reason)
        self._latest()
        return reference.rows.columns(), target.rows.columns()

    def _one_sided(self, site: Site, left: Group | None, right: Group | None) -> None:
        """What the other side does not have stays as it is: a difference of structure."""
        for side, other, group in zip(self._sides, self._sides[::-1], (left, right), strict=True):
            if group is not None:
                if counts_beyond(site, other.window):
                    self._left_out.add(site, LeftOut.SHAPE)
                else:
                    side.take(group)

    def _join(self, site: Site, left: Group, right: Group) -> LeftOut | None:
        if self._sides[0].window.columns.kind[left.first] == Kind.SAMPLE_IDS:
            return self._lists(site, left, right)
        if site.phase == Phase.LOSS:
            return self._losses(left, right)
        if site.phase in (Phase.FORWARD, Phase.BACKWARD) and self._free:
            return LeftOut.ORDER
        if site.phase == Phase.BACKWARD and (problem := self._scale_problem()):
            return problem
        return self._tensors(site, left, right)

    def _scale_problem(self) -> LeftOut | None:
        """Why gradients on their way cannot be compared."""
        if not self._loss.adds_up:
            return LeftOut.SCALE
        return LeftOut.SCALER if self._sides[0].scale != self._sides[1].scale else None

    # -- lists of samples ---------------------------------------------------------------------

    def _lists(self, site: Site, left: Group, right: Group) -> LeftOut | None:
        contents = self._contents.get(site.component)
        decides = site.field != DIGESTS or (contents is not None and contents.rearranged)
        for side, group in zip(self._sides, (left, right), strict=True):
            listed = self._ordered(side.window.joined_list(group))
            side.rows.plain(group.first, group.call, listed, decides=decides)
        return None

    def _ordered(self, listed: list[Any] | None) -> list[Any] | None:
        if listed is None or not self._free:
            return listed
        return sorted(listed, key=lambda each: (type(each).__name__, each))

    def _sample_leaves(self) -> set[tuple[int, int]]:
        """Judge leaves that belong to one sample each; the groups that this settles."""
        taken: set[tuple[int, int]] = set()
        windows = [side.window for side in self._sides]
        for leaves in sample_leaves(windows[0], windows[1]):
            taken |= leaves.keys
            if reason := self._follow(leaves):
                for number, _ in leaves.keys:
                    self._left_out.add(windows[0].sites.sites[number], reason)
        return taken

    def _follow(self, leaves: SampleLeaves) -> LeftOut | None:
        """Let the leaves of all samples follow one another; else why that cannot be."""
        both = list(zip(self._sides, leaves.rows, strict=True))
        if leaves.phase != Phase.DATA and self._free:
            return LeftOut.ORDER
        if leaves.phase == Phase.BACKWARD and (problem := self._scale_problem()):
            return problem
        tensors = {side.window.is_tensor(row) for side, rows in both for row in rows}
        if tensors == {False}:
            for side, rows in both:
                listed = self._ordered([side.window.plain(row) for row in rows])
                side.rows.plain(rows[0], 0, listed, decides=True)
            return None
        if tensors != {True}:
            return LeftOut.PLAIN
        return self._follow_tensors(both, leaves.phase)

    def _follow_tensors(self, both: list[tuple[_Side, list[int]]], phase: Phase) -> LeftOut | None:
        forms = [
            [(side.window.dtype(row), side.window.shape(row)) for row in rows]
            for side, rows in both
        ]
        digests = [[bytes(side.window.columns.digest[row]) for row in rows] for side, rows in both]
        if self._free:
            digests = [sorted(each) for each in digests]
        equal = digests[0] == digests[1]
        kept = all(side.window.has_value(row) for side, rows in both for row in rows)
        one_type = len({dtype for each in forms for dtype, _ in each}) == 1
        if not equal and kept and one_type and forms[0] == forms[1] and not self._free:
            elements = sum(math.prod(shape) for _, shape in forms[0])
            for side, rows in both:
                side.rows.joined(rows, 0, forms[0][0][0], (elements,))
            return None
        if not equal and phase != Phase.DATA:
            return LeftOut.VALUES
        for (side, rows), each in zip(both, digests, strict=True):
            digest = xxhash.xxh3_128_digest(b"".join(each))
            side.rows.fingerprint(rows[0], 0, digest, (len(rows),))
        return None

    # -- losses -------------------------------------------------------------------------------

    def _losses(self, left: Group, right: Group) -> LeftOut | None:
        if self._loss.word == "skip":
            return LeftOut.LOSS
        apart = self._sides[0].scale != self._sides[1].scale
        combined = []
        for side, group in zip(self._sides, (left, right), strict=True):
            scale = side.scale if apart else 1.0
            found = self._loss.combine(side.window, group, scale)
            if isinstance(found, LeftOut):
                return found
            combined.append(found)
        for side, group, data in zip(self._sides, (left, right), combined, strict=True):
            if len(group.rows) == 1 and not apart:
                side.take(group)
            else:
                side.rows.number(group.first, group.call, data, side.window.dtype(group.first))
        return None

    # -- tensors and plain values -------------------------------------------------------------

    def _tensors(self, site: Site, left: Group, right: Group) -> LeftOut | None:
        both = list(zip(self._sides, (left, right), strict=True))
        if any(len(group.rows) != side.window.count for side, group in both):
            return LeftOut.CALLS
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
            for side, shape in zip(self._sides, shapes, strict=True)
        ):
            # Dimension 0 counts something else than samples.
            return LeftOut.SHAPE
        if not self._free and self._concatenate(both, [shapes[0], shapes[1]]):
            return None
        if site.phase == Phase.DATA and self._by_samples(both, [shapes[0], shapes[1]], site):
            return None
        return LeftOut.ORDER if self._free else LeftOut.VALUES

    def _concatenate(self, both: list[tuple[_Side, Group]], shapes: list[Shape]) -> bool:
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

    def _by_samples(self, both: list[tuple[_Side, Group]], shapes: list[Shape], site: Site) -> bool:
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

    # -- what is a state rather than an event -------------------------------------------------

    def _latest(self) -> None:
        problem = self._scale_problem()
        for side in self._sides:
            for number, row in side.window.latest.items():
                site = side.window.sites.sites[number]
                if problem and site.phase == Phase.BACKWARD and site.field == "grad":
                    self._left_out.add(site, problem)
                else:
                    side.rows.take(row, 0)


def _same_everywhere(both: list[tuple[_Side, Group]]) -> bool:
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
