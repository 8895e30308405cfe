"""What is to be compared: the two traces of one rank."""

from dataclasses import dataclass

from traceparity.differ.policy import Policy
from traceparity.tracefmt.reader import Trace


@dataclass(frozen=True, slots=True)
class RankTask:
    """Two traces of one rank and the declared relation between them.

    Attributes:
        rank: Of which process.
        reference: The reference.
        target: The target, or a part of it.
        policy: The declared relation.
        expect_end: Whether the target should reach the end of the reference.
        expected: Where in the reference the part before ended; None where that is unknown.
        goes_on: Whether the target goes on where another part of it stopped.
    """

    rank: int
    reference: Trace
    target: Trace
    policy: Policy
    expect_end: bool
    expected: int | None
    goes_on: bool = False

    @property
    def can_travel(self) -> bool:
        """Whether both traces are files as they are, so that another process can open them."""
        return type(self.reference) is Trace and type(self.target) is Trace

    @property
    def observations(self) -> int:
        """Rows of both traces."""
        return self.reference.observations + self.target.observations
