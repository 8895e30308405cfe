"""Synthetic traces of loaders: batches with sample IDs, written with the real writer."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from traceparity.differ.coverage import judge_coverage
from traceparity.differ.coverage_report import CoverageReport
from traceparity.differ.policy import Coverage
from traceparity.tracefmt.reader import open_run
from traceparity.tracefmt.records import Flag, Header, Kind, Phase
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.tensor_digest import KIND, digest_of
from traceparity.tracefmt.writer import Writer

CONTEXT = int(Flag.CONTEXT)


@dataclass(frozen=True)
class Batch:
    """A batch: what the sampler asked for, and what fields it has.

    Attributes:
        ids: The sampler's; None where nobody knows.
        trained: Whether it was trained on.
        worker: Which worker made it.
        fields: Leaves of the batch; an array is a tensor.
        keeps: Whether values of tensors are kept.
        loader: Component.
        length: Of the dataset.
        listing: IDs of the dataset's samples.
        evaluation: Whether it is marked as evaluation.
    """

    ids: Any
    trained: bool = True
    worker: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    keeps: bool = True
    loader: str = "loader[0]"
    length: int | None = None
    listing: Sequence[int] | None = None
    evaluation: bool = False


@dataclass(frozen=True)
class Epoch:
    """A pass over a loader: its batches, each in a step of its own, and whether it was ended."""

    batches: Sequence[Batch]
    ended: bool = True
    recorded: int | None = None
    loader: str = "loader[0]"


def epoch(*batches: Any, ended: bool = True, recorded: int | None = None, **facts: Any) -> Epoch:
    """A pass whose batches are lists of IDs, or `Batch`."""
    made = [each if isinstance(each, Batch) else Batch(each, **facts) for each in batches]
    return Epoch(made, ended, recorded, facts.get("loader", "loader[0]"))


def write_run(
    folder: Path, *ranks: Sequence[Epoch], world: int | None = None, **options: Any
) -> Path:
    """Write the passes of each rank; one rank becomes a single file."""
    world = world or len(ranks)
    if len(ranks) == 1:
        path = folder / "run.trace"
        return write_rank(path, ranks[0], 0, world, **options)
    run = folder / "run.trace"
    run.mkdir()
    for rank, epochs in enumerate(ranks):
        write_rank(run / f"rank{rank}.trace", epochs, rank, world, **options)
    return run


def write_rank(
    path: Path,
    epochs: Sequence[Epoch],
    rank: int = 0,
    world: int = 1,
    *,
    complete: bool = True,
    capture: Mapping[str, Any] | None = None,
    leave_out: Sequence[str] = (),
    first_step: int = 0,
    reason: str = "killed",
) -> Path:
    """Write the passes of one rank."""
    header = Header(
        program="train.py",
        rank=rank,
        world_size=world,
        capture={"digest": KIND, "capture": "sketch", **(capture or {})},
    )
    writer = Writer(path, lambda: header)
    step = first_step
    for number, each in enumerate(epochs):
        recorded = number if each.recorded is None else each.recorded
        for at, batch in enumerate(each.batches):
            rows = _Table(writer, leave_out)
            rows.batch(batch, recorded, at)
            if each.ended and at == len(each.batches) - 1:
                end = {"epoch": recorded, "batches": len(each.batches)}
                rows.plain(batch.loader, "pass_end", end, CONTEXT)
            writer.write(step, rows.rows)
            step += 1
    writer.close(complete=complete, reason="" if complete else reason)
    return path


class _Table:
    def __init__(self, writer: Writer, leave_out: Sequence[str]) -> None:
        self.rows = Rows()
        self._writer = writer
        self._leave_out = leave_out

    def batch(self, batch: Batch, epoch: int, at: int) -> None:
        flags = 0 if batch.trained else CONTEXT
        if batch.evaluation:
            flags |= int(Flag.EVALUATION) | CONTEXT
        for name, value in batch.fields.items():
            if isinstance(value, np.ndarray):
                self._tensor(batch.loader, name, value, flags, keeps=batch.keeps)
            else:
                self.plain(batch.loader, name, value, flags)
        self.plain(batch.loader, "sample_ids", batch.ids, flags, Kind.SAMPLE_IDS)
        context = flags | CONTEXT
        self.plain(batch.loader, "sample_digests", [], context, Kind.SAMPLE_IDS)
        self.plain(batch.loader, "epoch", epoch, context)
        self.plain(batch.loader, "index", at, context)
        self.plain(batch.loader, "worker", batch.worker, context)
        self.plain(batch.loader, "dataset_length", batch.length, context)
        if batch.listing is not None:
            self.plain(batch.loader, "dataset_ids", batch.listing, context, Kind.SAMPLE_IDS)

    def plain(
        self, loader: str, name: str, value: Any, flags: int, kind: Kind = Kind.SCALAR
    ) -> None:
        if name not in self._leave_out:
            site = self._writer.site(Phase.DATA, loader, name, "")
            self.rows.plain(site, 0, 0, kind, flags, scalar_bytes(value))

    def _tensor(
        self, loader: str, name: str, array: np.ndarray, flags: int, *, keeps: bool
    ) -> None:
        site = self._writer.site(Phase.DATA, loader, name, "")
        data, shape = array.tobytes(), array.shape
        self.rows.tensor(
            site, 0, 0, flags, self._writer.string(str(array.dtype)), self._writer.string("cpu"),
            self._writer.shape(shape), digest_of(data, str(array.dtype), shape),
            value=data if keeps else None,
        )  # fmt: skip


def judge(path: Path, rule: str | Coverage = "exactly_once", **options: Any) -> CoverageReport:
    coverage = rule if isinstance(rule, Coverage) else Coverage(rule, **options)
    return judge_parts([path], coverage)


def judge_parts(
    paths: Sequence[Path], coverage: Coverage, reference: Path | None = None, **options: Any
) -> CoverageReport:
    with contextlib.ExitStack() as stack:
        runs = [open_run(path) for path in (*paths, *([reference] if reference else []))]
        for trace in (trace for run in runs for trace in run.values()):
            stack.enter_context(trace)
        known = runs[-1] if reference else None
        return judge_coverage(runs[: len(paths)], coverage, reference=known, **options)


def shard(ids: Sequence[Any], rank: int, world: int, size: int = 2) -> list[list[Any]]:
    """A rank's share of some samples, in batches."""
    own = list(ids[rank::world])
    return [own[at : at + size] for at in range(0, len(own), size)]


def sharded(tmp_path: Path, ids: Sequence[Any], world: int, **facts: Any) -> Path:
    return write_run(
        tmp_path, *([epoch(*shard(ids, rank, world), **facts)] for rank in range(world))
    )


def kinds(report: CoverageReport) -> list[str]:
    return [found.kind for found in report.violations]


def names(report: CoverageReport) -> list[Any]:
    return [found.sample_id for found in report.violations]
