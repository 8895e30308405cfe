"""Synthetic traces: a small training run, written with the real writer."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from traceparity.tracefmt.records import Flag, Header, Kind, Phase
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.writer import Writer

NO_FLAG = Flag(0)
STATE = Flag.STATEFUL
SNAPSHOT = Flag.STATEFUL | Flag.SNAPSHOT
SIGNS = np.random.default_rng(0).choice(np.float32([-1, 1]), (4096, 1))


@dataclass(frozen=True)
class Seen:
    """One row to be written; an array is a tensor, anything else plain data."""

    phase: Phase
    component: str
    field: str
    value: Any
    flags: Flag = NO_FLAG
    microbatch: int = 0
    call: int = 0
    kind: Kind = Kind.SCALAR

    @property
    def site(self) -> str:
        return f"{self.phase.label}:{self.component}:{self.field}"


@dataclass
class Step:
    """A step to be written."""

    rows: list[Seen] = field(default_factory=list)
    tail: bool = False

    def add(self, phase: Phase, component: str, name: str, value: Any, **more: Any) -> None:
        self.rows.append(Seen(phase, component, name, value, **more))

    def find(self, site: str) -> int:
        return next(i for i, row in enumerate(self.rows) if row.site == site)

    def change(self, site: str, value: Any) -> None:
        at = self.find(site)
        self.rows[at] = replace(self.rows[at], value=value)

    def remove(self, site: str) -> None:
        del self.rows[self.find(site)]


def sketch(array: np.ndarray) -> bytes:
    flat = np.zeros(-(-array.size // 61) * 61, np.float32)
    rows = flat.reshape(-1, 61)
    with np.errstate(all="ignore"):
        flat[: array.size] = array.ravel()
        return (rows * SIGNS[: len(rows)]).sum(0).astype(np.float32).tobytes()


def write_trace(
    path: Path,
    steps: Iterable[Step],
    *,
    capture: str = "sketch",
    complete: bool = True,
    first: int = 0,
    notes: Iterable[tuple[str, str]] = (),
    digest: str = "xxh3-128",
    settings: Mapping[str, Any] | None = None,
    most_rows: int = 1 << 30,
    **header: Any,
) -> Path:
    """Write steps as a trace file, of ``most_rows`` at most in a chunk."""
    kept = {"digest": digest, "capture": capture, **(settings or {})}
    head = Header(program="train.py", arguments=("--lr", "0.1"), capture=kept, **header)
    writer = Writer(path, lambda: head)
    for component, reason in notes:
        writer.not_observed(component, reason)
    for number, step in enumerate(steps, first):
        batches = 1 + max((seen.microbatch for seen in step.rows), default=0)
        for start in range(0, max(len(step.rows), 1), most_rows):
            rows = Rows()
            for seen in step.rows[start : start + most_rows]:
                _append(writer, rows, seen, capture)
            last = start + most_rows >= len(step.rows)
            writer.write(number, rows, last=last, tail=step.tail, micro_batches=batches)
    writer.close(complete=complete, reason="" if complete else "killed")
    return path


def _append(writer: Writer, rows: Rows, seen: Seen, capture: str) -> None:
    location = "train.py:10" if seen.phase == Phase.FORWARD else ""
    site = writer.site(seen.phase, seen.component, seen.field, location)
    if not isinstance(seen.value, np.ndarray):
        encoded = scalar_bytes(seen.value)
        rows.plain(site, seen.call, seen.microbatch, seen.kind, int(seen.flags), encoded)
        return
    array = np.asarray(seen.value, order="C")
    data = array.tobytes()
    head = f"{array.dtype}{array.shape}".encode()
    inexact = array.dtype.kind == "f"
    keep = capture == "values" or len(data) <= 16
    finite = array[np.isfinite(array)] if inexact else array
    stats = (float("nan"),) * 3
    if array.size and inexact and (len(data) > 16 or finite.size == array.size):
        with np.errstate(all="ignore"):
            wide = array.astype(np.float64)
            stats = float(wide.min()), float(wide.max()), float(np.linalg.norm(wide))
    flags = seen.flags | (Flag.NONFINITE if array.size > finite.size else NO_FLAG)
    rows.tensor(
        site, seen.call, seen.microbatch, int(flags), writer.string(str(array.dtype)),
        writer.string("cpu"), writer.shape(array.shape),
        xxhash.xxh3_128_digest(head + data), stats, array.size - finite.size,
        sketch(array) if inexact and capture != "digest" and len(data) > 16 else None,
        data if keep else None,
    )  # fmt: skip


LAYERS = ("embed", "body.0", "body.1", "head")


class Run:
    """A small made-up training: four linear layers, Adam, a schedule, a loader with sample IDs.

    The numbers follow from ``seed`` and the step alone, so that two runs are equal until a test
    changes a row.
    """

    def __init__(self, layers: tuple[str, ...] = LAYERS, width: int = 9, batches: int = 1) -> None:
        self.layers = layers
        self.width = width
        self.batches = batches
        self.lr = 0.1

    def array(self, *key: Any) -> np.ndarray:
        seed = xxhash.xxh32_intdigest(repr(key).encode())
        return np.random.default_rng(seed).standard_normal((self.width, 3)).astype(np.float32)

    def steps(self, count: int, start: int = 0) -> list[Step]:
        """Steps ``start`` to ``count``; the first one lists the state in full, as a resume does."""
        return [self._step(number, number == start) for number in range(start, count)]

    def rate(self, number: int) -> float:
        return self.lr * 0.9 ** (number // 2)

    def _step(self, number: int, snapshot: bool) -> Step:
        step = Step()
        if snapshot:
            self._snapshot(step, number)
        for name in ("torch", "python"):
            step.add(Phase.STATE, f"rng.{name}", "digest", f"{name}{number}", flags=Flag.CONTEXT)
        for batch in range(self.batches):
            self._micro_batch(step, number, batch)
        self._update(step, number)
        return step

    def _snapshot(self, step: Step, number: int) -> None:
        for layer in self.layers:
            weight = self.array("weight", layer, number)
            step.add(Phase.STATE, f"{layer}.weight", "value", weight, flags=SNAPSHOT)
        seen = np.array(number * self.batches)
        step.add(Phase.STATE, "body.1.seen", "value", seen, flags=SNAPSHOT)
        for layer in self.layers:
            step.add(Phase.STATE, f"{layer}.weight", "requires_grad", True, flags=SNAPSHOT)
        for module in ("", *self.layers):
            step.add(Phase.STATE, module, "training", True, flags=SNAPSHOT)
            settings = {"in": 3, "out": self.width}
            step.add(Phase.STATE, module, "settings", settings, flags=Flag.CONTEXT)
        if number:
            for layer in self.layers:
                moment = self.array("moment", layer, number)
                name = f"{layer}.weight"
                step.add(Phase.STATE, "optimizer[0]", f"exp_avg[{name}]", moment, flags=SNAPSHOT)
                count = np.float32(number)
                step.add(
                    Phase.STATE, "optimizer[0]", f"step[{name}]", np.array(count), flags=SNAPSHOT
                )
        for layer in self.layers:
            group = "optimizer[0] group[0]"
            step.add(Phase.STATE, f"{layer}.weight", "group", group, flags=SNAPSHOT)
        step.add(Phase.STATE, "optimizer[0] group[0]", "lr", self.rate(number), flags=SNAPSHOT)
        step.add(Phase.STATE, "optimizer[0] group[0]", "weight_decay", 0.01, flags=SNAPSHOT)
        step.add(Phase.STATE, "scheduler", "class", "StepLR", flags=Flag.CONTEXT)
        step.add(Phase.STATE, "scheduler.last_epoch", "value", number, flags=SNAPSHOT)

    def _micro_batch(self, step: Step, number: int, batch: int) -> None:
        def add(phase: Phase, component: str, name: str, value: Any, **more: Any) -> None:
            step.add(phase, component, name, value, microbatch=batch, **more)

        ids = [4 * (number * self.batches + batch) + i for i in range(4)]
        add(Phase.DATA, "loader[0]", "batch[image]", self.array("image", number, batch))
        add(Phase.DATA, "loader[0]", "batch[label]", np.array(ids))
        add(Phase.DATA, "loader[0]", "sample_ids", ids, kind=Kind.SAMPLE_IDS)
        digests = [f"digest{name}" for name in ids]
        context = {"flags": Flag.CONTEXT}
        add(Phase.DATA, "loader[0]", "sample_digests", digests, kind=Kind.SAMPLE_IDS, **context)
        add(Phase.DATA, "loader[0]", "worker", number % 2, **context)
        add(Phase.FORWARD, "", "input[0]", self.array("image", number, batch))
        for layer in self.layers:
            add(Phase.FORWARD, layer, "input[0]", self.array("in", layer, number, batch))
            add(Phase.FORWARD, layer, "output[0]", self.array("out", layer, number, batch))
            if layer == "body.1":
                seen = np.array(number * self.batches + batch + 1)
                add(Phase.FORWARD, "body.1.seen", "value", seen, flags=STATE)
        add(Phase.FORWARD, "", "output[0]", self.array("out", self.layers[-1], number, batch))
        loss = np.array(np.float32(2.0 / (1 + number) + batch))
        add(Phase.LOSS, "loss", "value", loss)
        for layer in reversed(self.layers):
            grad = self.array("grad_out", layer, number, batch)
            add(Phase.BACKWARD, layer, "grad_output[0]", grad)
            add(Phase.BACKWARD, f"{layer}.weight", "grad", self.array("g", layer, number, batch))

    def _update(self, step: Step, number: int) -> None:
        for layer in self.layers:
            step.add(Phase.GRADIENT, f"{layer}.weight", "grad", self.array("grad", layer, number))
        for layer in self.layers:
            name = f"{layer}.weight"
            weight, moment = (
                self.array("weight", layer, number + 1),
                self.array("moment", layer, number + 1),
            )
            step.add(Phase.OPTIMIZER, name, "value", weight, flags=STATE)
            step.add(Phase.OPTIMIZER, "optimizer[0]", f"exp_avg[{name}]", moment, flags=STATE)
            count = np.array(np.float32(number + 1))
            step.add(Phase.OPTIMIZER, "optimizer[0]", f"step[{name}]", count, flags=STATE)
        if self.rate(number + 1) != self.rate(number):
            rate = self.rate(number + 1)
            step.add(Phase.SCHEDULER, "optimizer[0] group[0]", "lr", rate, flags=STATE)
        step.add(Phase.SCHEDULER, "scheduler.last_epoch", "value", number + 1, flags=STATE)


def perturbed(steps: list[Step], relative: float) -> list[Step]:
    """The steps with every float32 tensor a little larger."""
    for step in steps:
        for at, row in enumerate(step.rows):
            if isinstance(row.value, np.ndarray) and row.value.dtype == np.float32:
                value = np.asarray(row.value * np.float32(1 + relative))
                step.rows[at] = replace(row, value=value)
    return steps


Change = Callable[[list[Step]], object]


def judged_rows(steps: list[Step]) -> Iterator[tuple[int, int]]:
    """``(step, row)`` of every row that decides."""
    for number, step in enumerate(steps):
        for at, seen in enumerate(step.rows):
            if not seen.flags & Flag.CONTEXT:
                yield number, at
