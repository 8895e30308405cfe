"""The passes of one rank over one loader: which of them trained, and which came to their end."""

from dataclasses import dataclass, field

from traceparity.differ.batch_rows import SeenBatch
from traceparity.differ.sample_ids import Numbers


@dataclass
class LoaderPasses:
    """What one rank did with one loader.

    The recorder counts all passes; an epoch is a pass in which something was trained on, so that an
    evaluation over the training data on one rank does not shift its epochs against the others'.

    Attributes:
        number_of: Epoch of each recorded pass of the current segment.
        current: The last epoch that began; -1 before the first.
        ended: Recorded passes of the current segment that delivered all they had.
        tells_ends: Whether any pass of the run came to a recorded end.
        batches: Batches that were trained on, by epoch.
        waiting: Batches of passes in which nothing was trained on yet, with their step.
        listing: All samples of the dataset, sorted, with their digest; None where not listed.
    """

    number_of: dict[int, int] = field(default_factory=dict)
    current: int = -1
    ended: set[int] = field(default_factory=set)
    tells_ends: bool = False
    batches: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, list[tuple[SeenBatch, int]]] = field(default_factory=dict)
    listing: tuple[bytes, Numbers] | None = None
    _goes_on: bool = False

    def end(self, recorded: int) -> None:
        """A recorded pass has delivered all it had."""
        self.ended.add(recorded)
        self.tells_ends = True

    def begin(self, recorded: int, *, after_full: bool) -> None:
        """Something of a recorded pass is trained on for the first time."""
        if not self._goes_on or after_full:
            self.current += 1
        self._goes_on = False
        self.number_of[recorded] = self.current

    def begin_segment(self) -> None:
        """The next process goes on: inside the last epoch unless that was over."""
        self._goes_on = self.current >= 0 and not self.is_over(self.current)
        self.number_of, self.ended = {}, set()
        self.waiting = {}

    def is_over(self, epoch: int) -> bool:
        """Whether all of an epoch was delivered, or it was left for the next one.

        Where no end was ever recorded, since the program asks for no more batches than there are,
        an epoch is taken for whole that has as many batches as the longest of several before.
        """
        if self.current > epoch:
            return True
        if any(self.number_of.get(recorded) == epoch for recorded in self.ended):
            return True
        earlier = [count for number, count in self.batches.items() if number < epoch]
        whole = len(earlier) > 1 and not self.tells_ends
        return whole and self.batches.get(epoch, 0) >= max(earlier)
