"""A run that goes on against an archived one: each step as it comes, and all of it at the end."""

from pathlib import Path

from traceparity.differ.capture import common_capture
from traceparity.differ.diff import describe_place, diff_runs
from traceparity.differ.following import FollowingDiff
from traceparity.differ.policy import Policy
from traceparity.differ.rank_relation import relate
from traceparity.differ.result import DiffResult
from traceparity.tracefmt.growing import GrowingTrace
from traceparity.tracefmt.location import Location
from traceparity.tracefmt.reader import Trace, open_run


class Against:
    """An archived reference that a run is judged by."""

    def __init__(self, reference: Location, policy: Policy) -> None:
        """Open the reference.

        Raises:
            TraceError: It cannot be used.
        """
        self._path = reference
        self._policy = policy
        self._run = open_run(reference)

    def judge_of(self, rank: int, target: GrowingTrace) -> "_RankJudge | None":
        """The judge of one process; None where the reference has no such rank."""
        ranks = self._policy.align.ranks
        if ranks == "sharded" or (ranks == "one_to_one" and rank not in self._run):
            # What is sharded is put together from the finished traces of all ranks.
            return None
        relation = relate(self._run, {rank: target}, self._policy)
        ((_, reference, _),) = relation.pairs
        return _RankJudge(rank, reference, target, relation.policy, self._path)

    def conclude(self, out: Path) -> DiffResult:
        """Compare all of the run, which has ended, with the reference.

        Raises:
            TraceError: The run left no trace, or one that cannot be used.
        """
        self.close()
        return diff_runs(self._path, [out], self._policy)

    def close(self) -> None:
        """Close the reference."""
        for trace in self._run.values():
            trace.close()


class _RankJudge:
    def __init__(
        self, rank: int, reference: Trace, target: GrowingTrace, policy: Policy, path: Location
    ) -> None:
        captures = reference.header.capture, target.header.capture
        narrowed = common_capture(policy, *captures).policy
        self._diff = FollowingDiff(rank, reference, target, narrowed)
        self._path = path

    def judge(self, trace: GrowingTrace, number: int, *, finished: bool) -> str | None:
        """The place where the step parts from the reference; see `Judge`."""
        divergence = self._diff.judge(number)
        if divergence is None:
            return None
        return f"the run parts from {self._path} at {describe_place(divergence)}"
