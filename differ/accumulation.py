"""Two runs that cut their updates into micro-batches in different ways, update by update."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from traceparity.differ.joined_trace import JoinedTrace
from traceparity.differ.left_out import Tally
from traceparity.differ.metrics import Metrics
from traceparity.differ.policy import Policy
from traceparity.differ.result import MICRO_BATCHES, Divergence, Evidence
from traceparity.differ.sites import JointSites, SideTable
from traceparity.differ.window_pair import WindowPair
from traceparity.differ.window_rows import WindowRows
from traceparity.differ.window_side import Half
from traceparity.tracefmt.records import Columns, Phase, Site, StepEntry

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

_KEPT_PAIRS = 4
_SCALE = Site(Phase.STATE, "scaler.scale", "value")


class _Windows:
    """The windows of one trace as stored, by the number of the step in the reference."""

    def __init__(
        self, trace: "Trace", sites: JointSites, table: SideTable, offset: int = 0
    ) -> None:
        self.trace = trace
        self.entries: dict[int, StepEntry] = {entry.number + offset: entry for entry in trace.steps}
        self._sites = sites
        self._table = table
        self._scales: dict[int, float] = {}
        self._scaled = [number for number, entry in enumerate(trace.sites) if entry.site == _SCALE]

    def rows(self, number: int) -> WindowRows:
        return WindowRows(self.trace, self.entries[number], self._sites, self._table)

    def columns(self, number: int) -> Columns:
        """The rows of a window as stored."""
        return self.trace.columns(self.entries[number].number)

    def may_lack(self, number: int) -> bool:
        """Whether a step may be cut off, so that its micro-batches cannot be counted."""
        return not self.trace.complete and number == max(self.entries)

    def scale(self, number: int) -> float:
        """What a gradient scaler multiplies the losses of a step by; 1 without one."""
        if not self._scaled:
            return 1.0
        earlier, found = number, None
        while found is None and earlier in self.entries:
            found = self._scales.get(earlier)
            if found is None:
                found = self._told(earlier)
            earlier -= 1
        self._scales[number] = 1.0 if found is None else found
        return self._scales[number]

    def _told(self, number: int) -> float | None:
        columns = self.columns(number)
        for row in (columns.site == self._scaled[0]).nonzero()[0].tolist():
            value = self.trace.scalar(columns, row)
            if isinstance(value, float) and value > 0:
                return value
        return None


class Accumulation:
    """The traces of both runs as if each update had had one micro-batch.

    Attributes:
        reference: The reference, put together.
        target: The target, put together.
        policy: The policy to judge them by: what it says of the order of samples is done.
    """

    def __init__(
        self,
        reference: "Trace",
        target: "Trace",
        sites: JointSites,
        policy: Policy,
        offset: int = 0,
        *,
        whole: bool = True,
    ) -> None:
        """Take both traces; steps are named by their number in the reference.

        Args:
            reference: The reference.
            target: The target, or a part of it.
            sites: The joint table.
            policy: The declared relation.
            offset: The reference's update that answers the target's first.
            whole: Whether the target should have all of the reference's updates.
        """
        self._align = policy.align
        self._whole = whole
        self.policy = replace(policy, align=replace(policy.align, order="exact"))
        self._offset = offset
        self._windows = (
            _Windows(reference, sites, sites.reference),
            _Windows(target, sites, sites.target, offset),
        )
        self.reference = JoinedTrace(reference, lambda number: self._pair(number)[0])
        self.target = JoinedTrace(target, lambda number: self._pair(number + offset)[1])
        self._pairs: OrderedDict[int, tuple[Columns, Columns]] = OrderedDict()
        self._left_out = Tally()
        self._short: dict[str, list[int]] = {}

    def extend(self, entries: Iterable[StepEntry]) -> None:
        """Take in updates that a growing target has got since, or that got more."""
        for entry in entries:
            self._windows[1].entries[entry.number + self._offset] = entry
            self._pairs.pop(entry.number + self._offset, None)

    def notes(self) -> Iterator[str]:
        """What was not compared, and why; which updates were short."""
        yield from self._left_out.notes()
        for name, steps in self._short.items():
            where = f"update {steps[0]}" + (f" and {len(steps) - 1} more" if steps[1:] else "")
            yield f"the {name} took fewer micro-batches than declared in {where}, of equal samples"

    def undecided(self) -> Iterator[str]:
        """Why what the policy declares could not be judged."""
        for reason in self._left_out.undecided():
            weight = self._align.loss_weight
            yield f'no losses can be compared by loss_weight = "{weight}": {reason.value}'

    def _pair(self, number: int) -> tuple[Columns, Columns]:
        found = self._pairs.get(number)
        if found is None:
            found = self._pairs[number] = self._joined(number)
            if len(self._pairs) > _KEPT_PAIRS:
                self._pairs.popitem(last=False)
        return found

    def _joined(self, number: int) -> tuple[Columns, Columns]:
        ours, theirs = self._windows
        if not (number in ours.entries and number in theirs.entries):
            lone = ours if number in ours.entries else theirs
            columns = lone.columns(number)
            return columns, columns
        counts = [side.entries[number].micro_batches for side in self._windows]
        if counts == [1, 1] and ours.scale(number) == theirs.scale(number):
            return ours.columns(number), theirs.columns(number)
        pair = WindowPair(
            self._align,
            Half(self.reference, ours.rows(number), ours.scale(number)),
            Half(self.target, theirs.rows(number), theirs.scale(number)),
            self._left_out,
        )
        return pair.join()

    def undeclared(self) -> str:
        """Why nothing can be compared where no numbers are declared; empty where they are."""
        if self._align.microbatches:
            return ""
        counts = [
            next((entry.micro_batches for entry in side.entries.values()), 0)
            for side in self._windows
        ]
        return (
            "how many micro-batches an update has is not declared: --microbatches N:M; "
            f"the first update has {counts[0]} in the reference and {counts[1]} in the target"
        )

    # -- counts of micro-batches --------------------------------------------------------------

    def miscount(self, number: int) -> "Miscount | None":
        """What is wrong with the numbers of micro-batches of an update; None where nothing is.

        Fewer than declared are in order where both sides had equally many samples, fewer than in a
        full update, as in the last one of an epoch. What is left after the last update is one on
        neither side.
        """
        declared = self._align.microbatches or (0, 0)
        left_over = [side.entries[number].tail for side in self._windows]
        for name, wanted, side, tail in zip(
            ("reference", "target"), declared, self._windows, left_over, strict=True
        ):
            count = side.entries[number].micro_batches
            if side.may_lack(number):
                continue
            if tail and not all(left_over):
                return self._miscount(name, number, count, wanted, tail=True)
            if count < wanted and self._is_short(number, side, wanted):
                self._short.setdefault(name, []).append(number)
            elif count != wanted:
                return self._miscount(name, number, count, wanted)
        return None

    def _miscount(
        self, name: str, number: int, count: int, wanted: int, *, tail: bool = False
    ) -> "Miscount":
        updates = [len(each.entries) if self._whole else 0 for each in self._windows]
        counts = updates[0], updates[1]
        return Miscount(name, number, count, wanted, tail, counts, self._samples(number))

    def _is_short(self, number: int, side: _Windows, wanted: int) -> bool:
        """Whether an update has equally few samples on both sides, fewer than a full one."""
        samples = self._samples(number)
        if samples is None or samples[0] != samples[1]:
            return False
        full = self._full(side, wanted)
        return full is not None and samples[0] < full

    def _full(self, side: _Windows, wanted: int) -> int | None:
        """How many samples an update has that took as many micro-batches as declared.

        A side that never did, as a last part with one short update, is measured by the other one.
        """
        declared = self._align.microbatches or (0, 0)
        for each, count in ((side, wanted), *zip(self._windows, declared, strict=True)):
            for number, entry in each.entries.items():
                if entry.micro_batches == count and not entry.tail:
                    sizes = each.rows(number).sizes
                    return None if sizes is None else sum(sizes)
        return None

    def _samples(self, number: int) -> tuple[int, int] | None:
        """How many samples both windows had; None where that is not known."""
        left, right = (side.rows(number).sizes for side in self._windows)
        return None if left is None or right is None else (sum(left), sum(right))


@dataclass(frozen=True, slots=True)
class Miscount:
    """An update that took another number of micro-batches than declared.

    Attributes:
        side: ``reference`` or ``target``.
        step: The update.
        count: How many it took.
        declared: How many are declared.
        tail: Whether no optimizer stepped after them.
        updates: How many updates both traces have; 0 where the target is one of several parts.
        samples: How many samples the update had on both sides; None where that is not known.
    """

    side: str
    step: int
    count: int
    declared: int
    tail: bool
    updates: tuple[int, int]
    samples: tuple[int, int] | None

    @property
    def detail(self) -> str:
        """The fact in one sentence."""
        plural = "" if self.count == 1 else "es"
        if self.tail:
            return (
                f"the {self.side} ended in update {self.step}: no optimizer stepped after "
                f"{self.count} micro-batch{plural}"
            )
        return (
            f"the {self.side} took {self.count} micro-batch{plural} in update {self.step}, "
            f"{self.declared} declared"
        )

    def divergence(self, rank: int, order: int) -> Divergence:
        """The divergence that it is, before anything of the update's batches is compared."""
        evidence = [Evidence(MICRO_BATCHES, False, self.detail)]
        if self.samples and self.samples[0] != self.samples[1]:
            detail = f"{self.samples[0]} samples in the reference against {self.samples[1]}"
            evidence.append(Evidence("samples", False, detail))
        if self.updates[0] != self.updates[1]:
            detail = f"{self.updates[0]} updates in the reference against {self.updates[1]}"
            evidence.append(Evidence("updates", False, detail))
        return Divergence(
            rank=rank,
            step=self.step,
            target_step=self.step,
            microbatch=0,
            call=0,
            phase=Phase.DATA.label,
            component="update",
            field=MICRO_BATCHES,
            kind="missing" if self.tail or self.count < self.declared else "extra",
            reference=None,
            target=None,
            metrics=Metrics(),
            order=order,
            evidence=tuple(evidence),
        )
