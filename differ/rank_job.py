"""The comparison of one rank in another process."""

from dataclasses import dataclass, replace
from pathlib import Path

from traceparity._version import __version__
from traceparity.differ.errors import WorkerError
from traceparity.differ.policy import Policy
from traceparity.differ.rank_diff import RankDiff, RankReport
from traceparity.differ.rank_task import RankTask
from traceparity.tracefmt.errors import TraceError
from traceparity.tracefmt.location import Location
from traceparity.tracefmt.reader import open_trace


@dataclass(frozen=True, slots=True)
class RankJob:
    """A task as it travels to another process: plain data.

    Attributes:
        rank: Of which process.
        reference: Where the reference lies.
        target: Where the target lies.
        policy: The declared relation.
        expect_end: As in `RankTask`.
        expected: As in `RankTask`.
        goes_on: As in `RankTask`.
        version: Of the traceparity that asks.
    """

    rank: int
    reference: Location
    target: Location
    policy: Policy
    expect_end: bool
    expected: int | None
    goes_on: bool
    version: str = __version__

    @classmethod
    def of(cls, task: RankTask) -> "RankJob":
        """The job that does a task."""
        return cls(
            task.rank, task.reference.path, task.target.path,
            task.policy, task.expect_end, task.expected, task.goes_on,
        )  # fmt: skip

    def from_anywhere(self) -> "RankJob":
        """The same for a process with another working folder."""
        places = [
            place.absolute() if isinstance(place, Path) else place
            for place in (self.reference, self.target)
        ]
        return replace(self, reference=places[0], target=places[1])


@dataclass(frozen=True, slots=True)
class Failed:
    """That a job found a trace that cannot be used. Exceptions do not travel well.

    Attributes:
        message: What is wrong, in one line.
    """

    message: str


def run_job(job: RankJob) -> RankReport | Failed:
    """Do a job, in whatever process this is."""
    if job.version != __version__:
        return Failed(f"a worker has traceparity {__version__}, this is {job.version}")
    try:
        with open_trace(job.reference) as reference, open_trace(job.target) as target:
            task = RankTask(
                job.rank, reference, target, job.policy, job.expect_end, job.expected, job.goes_on
            )
            return RankDiff(task).run()
    except TraceError as error:
        return Failed(str(error))


def report_of(done: RankReport | Failed) -> RankReport:
    """The report that came back.

    Raises:
        WorkerError: There is none, since a trace cannot be used.
    """
    if isinstance(done, Failed):
        raise WorkerError(done.message)
    return done
