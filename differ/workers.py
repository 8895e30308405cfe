"""Where ranks are compared: one after the other, in a pool of processes, or on a Dask cluster."""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from traceparity.differ.errors import WorkerError
from traceparity.differ.rank_diff import RankDiff, RankReport
from traceparity.differ.rank_job import RankJob, report_of, run_job
from traceparity.differ.rank_task import RankTask

PAYS = 8_000_000
"""Observations of both sides from which on further processes save more than their start costs."""
_PATIENCE = 10
"""Seconds in which a scheduler must answer."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Where ranks are compared.

    Attributes:
        jobs: Processes; None for as many as there are cores, where that pays.
        scheduler: Address of a Dask scheduler, whose workers are used instead; empty for none.
    """

    jobs: int | None = 1
    scheduler: str = ""

    def reports(self, tasks: Sequence[RankTask]) -> Iterator[RankReport]:
        """The report of each task, in order; the same wherever they are made.

        Raises:
            TraceError: A trace cannot be used.
            WorkerError: The same in another process, or there is no such process.
        """
        if len(tasks) > 1 and all(task.can_travel for task in tasks):
            jobs = [RankJob.of(task) for task in tasks]
            if self.scheduler:
                return _on_cluster(jobs, self.scheduler)
            if (processes := self._processes(tasks)) > 1:
                return _in_pool(jobs, processes)
        return (RankDiff(task).run() for task in tasks)

    def _processes(self, tasks: Sequence[RankTask]) -> int:
        if self.jobs is not None:
            return min(self.jobs, len(tasks))
        if sum(task.observations for task in tasks) < PAYS:
            return 1
        return min(_cores(), len(tasks))


HERE = Workers()
"""One after the other, in this process."""


def _cores() -> int:
    # What this process may use, which in a container is less than what the machine has.
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def _in_pool(jobs: Sequence[RankJob], processes: int) -> Iterator[RankReport]:
    import multiprocessing
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor

    # Not forked: whoever calls this may have threads, and a filesystem of fsspec has one.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_die_silently)
    try:
        for done in pool.map(run_job, jobs):
            yield report_of(done)
    except BrokenExecutor as error:
        raise WorkerError(
            "a process that compared ranks was killed, perhaps for want of memory; use fewer --jobs"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _die_silently() -> None:
    """An interrupt from the terminal reaches all processes; one of them says so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _on_cluster(jobs: Sequence[RankJob], scheduler: str) -> Iterator[RankReport]:
    try:
        from distributed import Client
    except ImportError:
        raise WorkerError("--scheduler needs Dask: pip install 'traceparity[dask]'") from None
    try:
        client: Any = Client(scheduler, timeout=_PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise WorkerError(f"no Dask scheduler answers at {scheduler}: {_line(error)}") from error
    with client:
        # A task is done again where it is asked for again: files change.
        futures = client.map(run_job, [job.from_anywhere() for job in jobs], pure=False)
        while futures:
            try:
                # A finished task is let go of, so that neither side holds all reports twice.
                done = futures.pop(0).result()
            except Exception as error:  # a task of ours raises nothing
                raise WorkerError(f"a worker of {scheduler} failed: {_line(error)}") from error
            yield report_of(done)


def _line(error: Exception) -> str:
    return str(error).split("\n")[0] or type(error).__name__
