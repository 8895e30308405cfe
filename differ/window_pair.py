"""Two windows that answer each other, told as if each had had one micro-batch.

What can be put together: sample IDs; tensors that follow one another along dimension 0, as batches,
outputs and the gradients of outputs do; what is the same in every micro-batch; the losses, as the
policy declares. Of accumulated gradients and of buffers the last value counts. The rest is left
out on both sides, with a reason.
"""

import math
from typing import Any

import xxhash

from traceparity.differ.batch_contents import batch_contents
from traceparity.differ.joined_trace import JoinedColumns
from traceparity.differ.left_out import LeftOut, Tally
from traceparity.differ.policy import Align
from traceparity.differ.sample_leaves import SampleLeaves, counts_beyond, sample_leaves
from traceparity.differ.tensor_join import TensorJoin
from traceparity.differ.window_loss import LossRelation
from traceparity.differ.window_rows import DIGESTS, Group
from traceparity.differ.window_side import Half, WindowSide
from traceparity.tracefmt.records import Kind, Phase, Site

Rows = list[tuple[WindowSide, list[int]]]
"""Both sides with rows of theirs."""


class WindowPair:
    """Puts the micro-batches of two windows together."""

    def __init__(self, align: Align, reference: Half, target: Half, left_out: Tally) -> None:
        self._free = align.order == "free"
        self._loss = LossRelation(align)
        self._sides = WindowSide(reference), WindowSide(target)
        self._left_out = left_out
        self._contents = batch_contents(reference.window, target.window, self._ordered)
        self._tensors = TensorJoin(self._contents, free=self._free)

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
        return self._tensors.join(site, list(zip(self._sides, (left, right), strict=True)))

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

    def _follow_tensors(
        self, both: list[tuple[WindowSide, list[int]]], phase: Phase
    ) -> LeftOut | None:
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
                side.rows.computed(group.first, group.call, data, side.window.dtype(group.first))
        return None

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
