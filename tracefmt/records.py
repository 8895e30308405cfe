"""The data model: what a trace says, apart from how it is stored.

A trace is a header, tables of interned sites, and steps. A step is a table of observations, held
as columns (`Columns`): one row for each value seen, in the order in which they were seen.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

SKETCH_WIDTH = 61
"""Numbers in a sketch; a prime, so that it never lines up with a tensor's own dimensions."""


class Phase(enum.IntEnum):
    """Part of a step, in the order of a step. The numbers are on disk: never renumber."""

    STATE = 0
    DATA = 1
    FORWARD = 2
    LOSS = 3
    BACKWARD = 4
    GRADIENT = 5
    OPTIMIZER = 6
    SCHEDULER = 7

    @property
    def label(self) -> str:
        """The name in reports and JSON, in lower case."""
        return self.name.lower()


class Kind(enum.IntEnum):
    """What an observation is. The numbers are on disk: never renumber."""

    TENSOR = 0
    SCALAR = 1
    SAMPLE_IDS = 2
    MARKER = 3


class Flag(enum.IntFlag):
    """Properties of one observation. The numbers are on disk: never renumber."""

    CONTEXT = 1
    """Explains but never decides."""
    EVALUATION = 2
    """Seen in evaluation activity; always together with CONTEXT."""
    STATEFUL = 4
    """A value that stays until it changes: its rows are a change log, no row means unchanged."""
    SNAPSHOT = 8
    """Part of a full listing of what a step starts from."""
    NONFINITE = 16
    """The tensor holds an infinity or a NaN."""
    RECOMPUTED = 32
    """Seen while activation checkpointing recomputed a forward pass."""
    EXTERNAL_VALUE = 64
    """The value lies in value records of its own, not in the chunk."""
    SHARDED = 128
    """A shard of a distributed tensor: one of the parts that the ranks hold of it."""


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """Where a value is seen; the same in every run of the same program.

    Attributes:
        phase: Part of the step.
        component: Dotted path without wrappers, e.g. ``blocks.3.attn``; empty for the root.
        field: What of the component, e.g. ``output[0]`` or ``lr``.
    """

    phase: Phase
    component: str
    field: str

    def __str__(self) -> str:
        return f"{self.phase.label}:{self.component}:{self.field}"


@dataclass(frozen=True, slots=True)
class SiteEntry:
    """A site as interned in one trace.

    Attributes:
        site: The site.
        location: Where the program first led to it, ``file:line``; empty where unknown.
    """

    site: Site
    location: str = ""


@dataclass(frozen=True, slots=True)
class NotObserved:
    """Something that the recorder could not see, so that nobody takes silence for equality.

    Attributes:
        component: Whose inside was not observed; empty for the root or the whole run.
        reason: Why, in a few words.
    """

    component: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A group of processes that exchange tensors, as this process knows it.

    Attributes:
        name: What torch or the program calls it; of a mesh's dimension its name.
        ranks: The global ranks in it, in their order in the group.
        backend: What carries the tensors: ``gloo``, ``nccl``, ...
    """

    name: str
    ranks: tuple[int, ...]
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Header:
    """What is known when recording begins.

    Attributes:
        program: Script, module or command that was run.
        arguments: Its arguments.
        process: pid, start time, host: what tells processes apart.
        rank: Number of this process among ``world_size``.
        world_size: Number of training processes of the run.
        versions: Package name to version.
        environment: Devices, determinism switches, git state, allowed environment variables.
        capture: The capture settings.
        session: Identifies the recording; equal for all processes of one run.
        groups: The process groups that this process was in when it made its first step.
        format_version: ``(major, minor)`` of the file format.
    """

    program: str = ""
    arguments: tuple[str, ...] = ()
    process: Mapping[str, Any] = field(default_factory=dict)
    rank: int = 0
    world_size: int = 1
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    capture: Mapping[str, Any] = field(default_factory=dict)
    session: str = ""
    groups: tuple[ProcessGroup, ...] = ()
    format_version: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class StepEntry:
    """What the index knows of a step.

    Attributes:
        number: Counted from 0 in each trace.
        tail: Whether it is the rest after the last update.
        chunks: ``(offset, length)`` in bytes of each chunk that holds a part of it, in order.
        observations: Rows in each phase, context included, by phase number.
        phase_digests: For each phase 16 bytes over its sites and value digests, context left out;
            16 zero bytes where nothing was seen.
        parameters_digest: 16 bytes over the parameters when the step ended; zero where unknown.
        micro_batches: How many forward/backward passes the step had.
        whole: Whether all of the step is in the file; False only for `Trace.unfinished`.
    """

    number: int
    tail: bool
    chunks: tuple[tuple[int, int], ...]
    observations: tuple[int, ...]
    phase_digests: tuple[bytes, ...]
    parameters_digest: bytes = bytes(16)
    micro_batches: int = 1
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of a file that cannot be used.

    Attributes:
        offset: Where it begins, in bytes.
        end: Where it ends.
        reason: What is wrong with it.
        steps: Numbers of the steps that are known to have lost something by it.
    """

    offset: int
    end: int
    reason: str
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Columns:
    """The observations of a step as parallel arrays of ``n`` rows, in execution order.

    Ids point into the tables of the trace that the columns come from.

    Attributes:
        site: ``(n,)`` uint32, index into ``Trace.sites``.
        call: ``(n,)`` uint32, the how-manyth time the site was seen in its micro-batch.
        microbatch: ``(n,)`` uint32.
        kind: ``(n,)`` uint8, a `Kind`.
        flags: ``(n,)`` uint16, `Flag` bits.
        dtype: ``(n,)`` uint32, index into ``Trace.strings``; 0 (the empty string) for no tensor.
        device: ``(n,)`` uint32, index into ``Trace.strings``.
        shape: ``(n,)`` uint32, index into ``Trace.shapes``; 0 (the shape ``()``) for no tensor.
        whole: ``(n,)`` uint32, index into ``Trace.shapes``: of a shard the shape of the whole
            tensor; 0 for any other row.
        offset: ``(n,)`` uint32, index into ``Trace.shapes``: of a shard where in the whole tensor
            its first element is.
        layout: ``(n,)`` uint32, index into ``Trace.strings``: of a shard how the whole tensor is
            laid out over the ranks.
        digest: ``(n, 2)`` uint64, 128 bits over bytes, dtype and shape.
        stats: ``(n, 3)`` float32: minimum, maximum, L2 norm; NaN where not taken.
        nonfinite: ``(n,)`` uint32, infinities and NaNs in the tensor.
        sketch_row: ``(n,)`` int32, row in ``sketches``; -1 where none was taken.
        sketches: ``(m, 61)`` float32.
        value_offset: ``(n,)`` int64, where the value begins: in ``values``, or in the file for
            rows flagged EXTERNAL_VALUE; -1 where none was kept.
        value_length: ``(n,)`` uint64, bytes of the value.
        values: Kept values, one after the other: msgpack for scalars, markers and sample IDs,
            little-endian row-major bytes for tensors.
    """

    site: npt.NDArray[np.uint32]
    call: npt.NDArray[np.uint32]
    microbatch: npt.NDArray[np.uint32]
    kind: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint16]
    dtype: npt.NDArray[np.uint32]
    device: npt.NDArray[np.uint32]
    shape: npt.NDArray[np.uint32]
    whole: npt.NDArray[np.uint32]
    offset: npt.NDArray[np.uint32]
    layout: npt.NDArray[np.uint32]
    digest: npt.NDArray[np.uint64]
    stats: npt.NDArray[np.float32]
    nonfinite: npt.NDArray[np.uint32]
    sketch_row: npt.NDArray[np.int32]
    sketches: npt.NDArray[np.float32]
    value_offset: npt.NDArray[np.int64]
    value_length: npt.NDArray[np.uint64]
    values: bytes

    def __len__(self) -> int:
        return len(self.site)
