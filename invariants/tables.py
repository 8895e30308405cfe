"""Tables of facts: what a step says of tensors, gradients, batches, losses and clipping."""

import enum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from traceparity.invariants.state import Ids, Mask


class Values(msgspec.Struct, frozen=True):
    """News of parameters and buffers, in execution order.

    Attributes:
        row: Row of the step.
        tensor: Number of the tensor.
        phase: Phase in which it was told.
        microbatch: Micro-batch.
        digest: ``(n, 2)``.
        changed: Whether the digest is another than that of the news before.
        first: Whether it is the first news of the tensor in the trace.
        norm: L2 norm; NaN where not taken.
        nonfinite: Infinities and NaNs in it.
    """

    row: Ids
    tensor: Ids
    phase: npt.NDArray[np.uint8]
    microbatch: npt.NDArray[np.uint32]
    digest: npt.NDArray[np.uint64]
    changed: Mask
    first: Mask
    norm: npt.NDArray[np.float32]
    nonfinite: npt.NDArray[np.uint32]


class Gradient(enum.IntEnum):
    """What a gradient is."""

    NONE = 0
    ZERO = 1
    NONZERO = 2
    UNKNOWN = 3


class Gradients(msgspec.Struct, frozen=True):
    """Gradients of parameters, as each backward pass left them or as the optimizer got them.

    Attributes:
        row: Row of the step.
        tensor: Number of the parameter.
        microbatch: Micro-batch; 0 for what the optimizer got.
        kind: A `Gradient`.
        digest: ``(n, 2)``; meaningless for NONE.
        norm: L2 norm; NaN for NONE.
        nonfinite: Infinities and NaNs in it.
    """

    row: Ids
    tensor: Ids
    microbatch: npt.NDArray[np.uint32]
    kind: npt.NDArray[np.uint8]
    digest: npt.NDArray[np.uint64]
    norm: npt.NDArray[np.float32]
    nonfinite: npt.NDArray[np.uint32]


class Batch(msgspec.Struct, frozen=True):
    """A batch that a loader gave.

    Attributes:
        row: Its first row in the step.
        loader: ``loader[0]``; ``loader`` for one that nothing was ever trained on.
        microbatch: Micro-batch that it was used in.
        trained: Whether it was trained on.
        epoch: Pass over the loader, those of evaluations included; None where unknown.
        index: Number in the pass.
        worker: Which worker made it; None without workers.
        ids: Sample IDs; None where unknown.
        sample_digests: One content digest a sample; empty where not taken.
        content: Digest over all tensors of the batch; empty where it holds none.
        size: Samples; None where unknown.
        dataset_length: Samples of the dataset; None where unknown.
        sampler: What chose the samples of the pass that begins with it; None where it does not
            begin one, where nobody knows, and in traces of recorders that did not tell.
    """

    row: int
    loader: str
    microbatch: int
    trained: bool
    epoch: int | None = None
    index: int | None = None
    worker: int | None = None
    ids: tuple[Any, ...] | None = None
    sample_digests: tuple[Any, ...] = ()
    content: bytes = b""
    size: int | None = None
    dataset_length: int | None = None
    sampler: dict[str, Any] | None = None


class Loss(msgspec.Struct, frozen=True):
    """The root of a backward pass.

    Attributes:
        row: Row of the step.
        microbatch: Micro-batch.
        value: Its value; NaN for a tensor of several elements.
        nonfinite: Whether it holds an infinity or a NaN.
    """

    row: int
    microbatch: int
    value: float
    nonfinite: bool


class Evaluation(msgspec.Struct, frozen=True):
    """A call of a root module as evaluation activity.

    Attributes:
        row: Row of the step.
        module: Path of the root.
        training: Its train/eval flag.
        draws: Whether torch's generator was drawn from; None where unknown.
    """

    row: int
    module: str
    training: bool
    draws: bool | None


class Clip(msgspec.Struct, frozen=True):
    """A call of ``clip_grad_norm_`` or ``clip_grad_value_``.

    Attributes:
        row: Row of the step.
        function: Its name.
        total_norm: What it returned; NaN for ``clip_grad_value_``.
        limit: The largest norm or value allowed; NaN where it is no number.
    """

    row: int
    function: str
    total_norm: float
    limit: float


class LeftGradients(msgspec.Struct, frozen=True):
    """What the gradients of the parameters held when a backward pass began.

    Attributes:
        row: Row of the step.
        microbatch: Micro-batch that the pass belongs to.
        none: Parameters without gradient.
        zero: Parameters whose gradient was set to zero.
        kept: Parameters that still hold the gradient of a pass before.
        unknown: Parameters whose gradient was written and not looked at.
        first_kept: Name of the first one of ``kept``.
    """

    row: int
    microbatch: int
    none: int
    zero: int
    kept: int
    unknown: int
    first_kept: str
