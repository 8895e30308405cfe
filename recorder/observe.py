"""Observe: from a value to a row. Digests, statistics, sketches and kept values of tensors."""

import ctypes
import math
from typing import Any, NamedTuple

import torch
import xxhash

from traceparity.recorder import composite, digest, word_digest
from traceparity.recorder.pending import Pending
from traceparity.recorder.seen import Seen
from traceparity.recorder.shards import (
    Shard,
    Shards,
    Unobservable,
    Valueless,
    is_distributed,
    local_tensor,
)
from traceparity.recorder.sketch import Sketcher
from traceparity.tracefmt.records import SKETCH_WIDTH, Flag, Kind
from traceparity.tracefmt.rows import Rows, scalar_bytes
from traceparity.tracefmt.tensor_digest import seed_of_shard
from traceparity.tracefmt.writer import Writer

INLINE_BYTES = 16
"""Tensors up to this size keep their value at every capture level: losses, step counters."""
INDEX_BYTES = 8192
"""Up to this size whole numbers of a batch in one dimension are kept: they may name its samples."""
INLINE_VALUE = 4096
"""Longer values go to value records of their own."""
DEVICES = frozenset({"cuda"})
"""Types of devices whose tensors are summarised there; of others the values are copied."""
_C: Any = torch._C
_NO_STATS = (math.nan, math.nan, math.nan)
_WHOLE = (0, 0, 0)
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_norm: Any = _C._linalg.linalg_vector_norm
_keys: Any = _C._dispatch_keys
_xxh3 = xxhash.xxh3_128_digest


_Content = tuple[
    bytes, tuple[float, float, float], int, bytes | None, bytes | None, tuple[int, int] | None
]
"""The fields of a summary from its digest on."""


class _Form(NamedTuple):
    """What all dense tensors of a dtype and shape have in common."""

    dtype: int
    shape: int
    seed: int
    memory: Any  # a type of buffer as large as the tensor


class Summary(NamedTuple):
    """What is kept of a tensor; the ids are those of the trace's tables."""

    dtype: int
    device: int
    shape: int
    digest: bytes
    stats: tuple[float, float, float]
    nonfinite: int
    sketch: bytes | None
    value: bytes | None
    external: tuple[int, int] | None
    shard: tuple[int, int, int]


class Observer:
    """Turns values into rows.

    Summaries of tensors seen in the same step are kept by identity and version counter, so that a
    tensor handed from module to module is read once.
    """

    def __init__(self, writer: Writer, capture: str) -> None:
        self._writer = writer
        self.pending = Pending(INLINE_BYTES, self._numbers, sketched=capture == "sketch")
        self._sketcher = Sketcher() if capture in ("sketch", "values") else None
        self._values = capture == "values"
        self._seen: Seen[Summary] = Seen()
        self._meta: dict[tuple[Any, ...], tuple[int, int, int, tuple[int, int, int]]] = {}
        self._shards = Shards()
        self._devices: dict[torch.device, int] = {}
        self._forms: dict[tuple[torch.dtype, tuple[int, ...]], _Form] = {}
        # Dispatch keys tell at once that a tensor is neither sparse, nested, quantized, wrapped,
        # conjugated nor on a device; asking one by one costs more than reading a small one.
        self._dense_keys = _keys(torch.empty(0, device="cpu")).raw_repr()

    def forget(self) -> None:
        """Forget the tensors of the step that ended."""
        self._seen.clear()
        self.pending.forget()

    def forget_one(self, tensor: torch.Tensor) -> None:
        """Forget a tensor that was written without its version counter's knowledge."""
        self._seen.discard(what_is_written(tensor))

    def tensor(
        self, rows: Rows, site: int, call: int, microbatch: int, flags: int, tensor: torch.Tensor
    ) -> Summary:
        """Append a row for a tensor.

        Raises:
            Unobservable: It has no readable values.
        """
        summary = self.summary(tensor)
        self.row(rows, site, call, microbatch, flags, summary)
        return summary

    def row(
        self, rows: Rows, site: int, call: int, microbatch: int, flags: int, summary: Summary
    ) -> None:
        """Append a row for a summary made before."""
        dtype, device, shape, fingerprint, stats, nonfinite, sketch, value, external, shard = (
            summary
        )
        if nonfinite:
            flags |= Flag.NONFINITE
        if shard is not _WHOLE:
            flags |= Flag.SHARDED
        rows.tensor(
            site, call, microbatch, flags, dtype, device, shape, fingerprint, stats, nonfinite,
            sketch, value, external, shard,
        )  # fmt: skip

    def plain(
        self, rows: Rows, site: int, call: int, microbatch: int, flags: int, value: Any,
        kind: Kind = Kind.SCALAR,
    ) -> None:  # fmt: skip
        """Append a row for a plain value: a scalar, a marker or sample IDs."""
        rows.plain(site, call, microbatch, kind, flags, scalar_bytes(value))

    def summary(self, tensor: torch.Tensor) -> Summary:
        """What is kept of a tensor.

        Raises:
            Unobservable: It has no readable values.
        """
        if tensor.is_inference():
            return self._summarise(tensor)
        written = what_is_written(tensor)
        version = written._version
        seen = self._seen.get(written, version)
        if seen is not None:
            return seen
        summary = self._summarise(tensor)
        self._seen.put(written, version, summary)
        return summary

    def batch_leaf(self, tensor: torch.Tensor) -> Summary:
        """What is kept of a tensor in a batch: the values too where they may name samples.

        Raises:
            Unobservable: It has no readable values.
        """
        summary, local = self.summary(tensor), readable(tensor)
        if summary.value is None and summary.external is None and _may_name_samples(local):
            dense = dense_cpu(local)
            return summary._replace(value=bytes(digest.dense_bytes(dense)))
        return summary

    def fresh(self, tensor: torch.Tensor, known: Summary | None) -> Summary:
        """What is kept of a tensor that may have been written past its version counter.

        Writes through ``tensor.data`` and by a reducer do not count as versions, so the bytes are
        read again; if they are those of ``known``, the rest of it is taken over.

        Raises:
            Unobservable: It has no readable values.
        """
        summary = self._summarise(tensor, known)
        if not tensor.is_inference():
            written = what_is_written(tensor)
            self._seen.put(written, written._version, summary)
        return summary

    def fingerprint(self, tensor: torch.Tensor) -> bytes:
        """A digest of the bytes of a tensor as they are now, to compare with another one of it.

        Raises:
            Unobservable: It has no readable values.
        """
        local = readable(tensor)
        if composite.is_composite(local):
            parts = [self.fingerprint(part) for part in composite.parts_of(local)]
            return digest.joined_digest(parts, 0)
        return digest.dense_digest(dense_cpu(local), 0)

    def _summarise(self, tensor: torch.Tensor, known: Summary | None = None) -> Summary:
        if type(tensor) in _TENSORS and _keys(tensor).raw_repr() == self._dense_keys:
            return self._dense(tensor, known)
        local = readable(tensor)
        place = self._shards.of(tensor, local) if is_distributed(tensor) else None
        dtype, shape, seed, shard = self._described(local, place)
        device = self._device(local)
        if composite.is_composite(local):
            return Summary(dtype, device, shape, *self._composite(local, seed), shard)
        # The sketch of a shard needs its place, so a shard is always copied.
        if local.device.type in DEVICES and not self._values and place is None:
            token = self.pending.add(row_major(local), seed)
            small = local.nbytes <= INLINE_BYTES
            value = bytes(local.nbytes) if small else None
            sketched = self._sketcher is not None and not small and _has_sketch(local.dtype)
            sketch = bytes(4 * SKETCH_WIDTH) if sketched else None
            return Summary(dtype, device, shape, token, _NO_STATS, 0, sketch, value, None, shard)
        data = dense_cpu(local)
        fingerprint = digest.dense_digest(data, seed)
        if known is not None and known.digest == fingerprint and known.device == device:
            return known
        stats, nonfinite, sketch = self._numbers(data, place)
        value, external = self._kept(data, fingerprint)
        return Summary(
            dtype, device, shape, fingerprint, stats, nonfinite, sketch, value, external, shard
        )

    def _dense(self, tensor: torch.Tensor, known: Summary | None) -> Summary:
        """`_summarise` of an ordinary tensor on the CPU, as nearly all are."""
        key = tensor.dtype, tensor.shape
        form = self._forms.get(key) or self._new_form(*key)
        data = tensor if tensor.is_contiguous() else tensor.contiguous()
        # An empty tensor may have no address.
        memory = form.memory.from_address(data.data_ptr()) if data.numel() else b""
        fingerprint = _xxh3(memory, form.seed)
        device = self._device(tensor)
        if known is not None and known.digest == fingerprint and known.device == device:
            return known
        stats, nonfinite, sketch = self._numbers(data)
        value, external = self._kept(data, fingerprint)
        return Summary(
            form.dtype, device, form.shape, fingerprint, stats, nonfinite, sketch, value, external,
            _WHOLE,
        )  # fmt: skip

    def _new_form(self, dtype: torch.dtype, shape: torch.Size) -> _Form:
        name, sizes = str(dtype).removeprefix("torch."), tuple(shape)
        size = math.prod(sizes) * dtype.itemsize
        form = self._forms[dtype, sizes] = _Form(
            self._writer.string(name),
            self._writer.shape(sizes),
            digest.seed_of(name, sizes),
            ctypes.c_char * size,
        )
        return form

    def _device(self, tensor: torch.Tensor) -> int:
        found = self._devices.get(tensor.device)
        if found is None:
            name = str(tensor.device)
            found = self._devices[tensor.device] = self._writer.string(name)
        return found

    def _composite(self, tensor: torch.Tensor, seed: int) -> _Content:
        """The fields of a summary that follow its shape; a distance only for sparse tensors."""
        parts = [self._summarise(part.cpu()) for part in composite.parts_of(tensor)]
        fingerprint = digest.joined_digest([part.digest for part in parts], seed)
        if not composite.is_sparse_floats(tensor):
            return fingerprint, _NO_STATS, 0, None, None, None
        # The norm of the values, which come last, is that of the whole.
        norm = parts[-1].stats[2] if tensor._nnz() else 0.0
        nonfinite = parts[-1].nonfinite
        sketch: bytes | None = None
        kept: tuple[bytes | None, tuple[int, int] | None] = (None, None)
        if self._sketcher is not None:
            sketch = composite.sparse_sketch(tensor, self._sketcher).numpy().tobytes()
        if self._values and (dense := composite.written_out(tensor)) is not None:
            kept = self._kept(dense_cpu(dense), fingerprint)
        return fingerprint, (math.nan, math.nan, norm), nonfinite, sketch, *kept

    def _described(
        self, tensor: torch.Tensor, place: Shard | None
    ) -> tuple[int, int, int, tuple[int, int, int]]:
        shape: tuple[int, ...] = () if tensor.is_nested else tuple(tensor.shape)
        key = (tensor.dtype, shape, place)
        found = self._meta.get(key)
        if found is None:
            name, writer = str(tensor.dtype).removeprefix("torch."), self._writer
            seed, shard = digest.seed_of(name, shape), _WHOLE
            if place is not None:
                seed = seed_of_shard(name, shape, place.offset, place.whole)
                numbers = writer.shape(place.whole), writer.shape(place.offset)
                shard = (*numbers, writer.string(place.layout))
            found = self._meta[key] = writer.string(name), writer.shape(shape), seed, shard
        return found

    def _numbers(
        self, dense: torch.Tensor, place: Shard | None = None
    ) -> tuple[tuple[float, float, float], int, bytes | None]:
        dtype = dense.dtype
        if not dense.numel() or dtype is torch.bool:
            return _NO_STATS, 0, None
        if not dtype.is_floating_point and not dtype.is_complex:
            # Most operations lack the wider unsigned types.
            low, high = torch.aminmax(dense.double() if dtype in _UNSIGNED else dense)
            return (_clamped(low.item()), _clamped(high.item()), math.nan), 0, None
        flat = torch.view_as_real(dense).view(-1) if dtype.is_complex else dense.view(-1)
        if dtype is not torch.float32:
            flat = flat.to(torch.float32)
        elements = math.prod(place.whole) if place else dense.numel()
        if elements * dense.element_size() <= INLINE_BYTES:
            # The value itself is kept, so there is nothing to estimate.
            return *_few_numbers(flat.tolist()), None
        norm = _norm(flat).item()
        nonfinite = 0 if math.isfinite(norm) else int(flat.numel() - flat.isfinite().sum().item())
        if self._sketcher is None:
            return (math.nan, math.nan, norm), nonfinite, None
        low, high = torch.aminmax(flat)
        sketch = self._sketch(flat, dense, place)
        return (low.item(), high.item(), norm), nonfinite, sketch

    def _sketch(self, flat: torch.Tensor, dense: torch.Tensor, place: Shard | None) -> bytes:
        assert self._sketcher is not None
        if place is None:
            return self._sketcher.packed(flat)
        shape, offset, whole = tuple(dense.shape), place.offset, place.whole
        if dense.is_complex():
            # Real and imaginary parts are one dimension more.
            shape, offset, whole = (*shape, 2), (*offset, 0), (*whole, 2)
        return self._sketcher.shard(flat, shape, offset, whole).numpy().tobytes()

    def _kept(
        self, dense: torch.Tensor, fingerprint: bytes
    ) -> tuple[bytes | None, tuple[int, int] | None]:
        size = dense.numel() * dense.element_size()
        if size > INLINE_BYTES and not self._values:
            return None, None
        if size <= INLINE_VALUE:
            return bytes(digest.dense_bytes(dense)), None
        return None, self._writer.value(fingerprint, memoryview(digest.dense_bytes(dense)))


def digest_kinds(capture: str) -> str | dict[str, str]:
    """How digests are made, as the header says it; by type of device where there are several."""
    if capture == "values" or not any(getattr(torch, kind).is_available() for kind in DEVICES):
        return digest.KIND
    return {"cpu": digest.KIND, **dict.fromkeys(sorted(DEVICES), word_digest.KIND)}


def _may_name_samples(tensor: torch.Tensor) -> bool:
    dtype = tensor.dtype
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool or tensor.is_quantized:
        return False
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.dim() > 1:
        return False
    return tensor.numel() * tensor.element_size() <= INDEX_BYTES


def _has_sketch(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _few_numbers(numbers: list[float]) -> tuple[tuple[float, float, float], int]:
    finite = [number for number in numbers if math.isfinite(number)]
    if len(finite) < len(numbers):
        return (math.nan, math.nan, math.nan), len(numbers) - len(finite)
    return (min(numbers), max(numbers), math.hypot(*numbers)), 0


def _clamped(number: float) -> float:
    return float(max(min(number, 3.4e38), -3.4e38))


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose memory holds the values: itself, or the local shard of a distributed one.

    Raises:
        Unobservable: There is no such memory.
    """
    if type(tensor) in _TENSORS:
        tensor = outside_transform(tensor)
        device = tensor.device.type
        if device == "meta":
            raise Valueless("a meta tensor")
        if device == "cuda" and torch.cuda.is_current_stream_capturing():
            # Reading would become part of the program's graph, or break its capture.
            raise Unobservable("captured into a CUDA graph, which is replayed unseen")
        return tensor
    if is_distributed(tensor):
        return readable(local_tensor(tensor))
    if hasattr(tensor, "trigger_wait"):
        # The result of a functional collective: others may still write to it, and we do not wait.
        awaited: Any = tensor
        if not awaited.completed:
            raise Unobservable("a result that was not waited for yet")
        return readable(awaited.elem)
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise Unobservable(f"a {type(tensor).__name__}")
    return tensor.as_subclass(torch.Tensor)


def what_is_written(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose version counts writes: of a distributed one its local part."""
    return tensor._local_tensor if is_distributed(tensor) else tensor  # type: ignore[attr-defined]


def outside_transform(tensor: torch.Tensor) -> torch.Tensor:
    """What a functorch transform (vmap, grad, ...) has wrapped; all samples of a batch at once."""
    functorch = _C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def dense_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a contiguous CPU tensor in row-major order."""
    return row_major(tensor if tensor.device.type == "cpu" else tensor.to("cpu"))


def row_major(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a contiguous tensor in row-major order."""
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def storage_of(tensor: torch.Tensor) -> int:
    """Where a tensor's memory begins, the same for all views of it; 0 where it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        # Sparse and functional tensors share none and are matched by content alone.
        return 0
