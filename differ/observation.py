"""One observation as a value, taken out of the columns when somebody looks closer."""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from traceparity.tracefmt.reader import Trace
from traceparity.tracefmt.records import Columns, Flag, Kind

_TORCH_DTYPES = {
    "bool": "bool",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
    "quint8": "uint8",
    "qint8": "int8",
    "qint32": "int32",
}
_KINDS = {int(kind): kind for kind in Kind}
_flags = functools.lru_cache(maxsize=1024)(Flag)
_SHOWN_BYTES = 4096
"""Bytes of a tensor up to which a report may show its elements."""
_ML_DTYPES = {
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
}


@dataclass(frozen=True, slots=True)
class Observation:
    """One value seen at one site in one call.

    Attributes:
        kind: Tensor, scalar, sample IDs or marker.
        dtype: The tensor's dtype without ``torch.``; empty for a plain value.
        shape: The tensor's shape.
        device: The tensor's device; empty for a plain value.
        digest: Exact fingerprint.
        minimum: Smallest element; NaN where not taken, as `maximum` and `norm`.
        maximum: Largest element.
        norm: L2 norm.
        nonfinite: Infinities and NaNs.
        flags: The row's flags.
        sketch: 61 float32, or None.
        data: The kept bytes of a tensor, or None.
        plain: The value of a scalar, marker or list of sample IDs.
        place: Of a shard where it begins in the whole tensor, and the shape of that; else None.
        layout: Of a shard how the whole is laid out, of a tensor put together the parts that it is
            made of; else empty.
    """

    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    device: str
    digest: bytes
    minimum: float
    maximum: float
    norm: float
    nonfinite: int
    flags: Flag
    sketch: npt.NDArray[np.float32] | None
    data: bytes | None
    plain: Any
    place: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    layout: str = ""

    @property
    def digest_recipe(self) -> str:
        """Tells how a tensor put together was fingerprinted: part by part; else empty."""
        return "" if self.place else self.layout

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor rather than a plain value."""
        return self.kind == Kind.TENSOR

    @property
    def absent_gradient(self) -> bool:
        """Whether it says that there was no tensor: the scalar None."""
        return self.kind == Kind.SCALAR and self.plain is None

    def array(self) -> npt.NDArray[Any] | None:
        """The elements, in the tensor's own dtype; None where its bytes were not kept."""
        if self.data is None:
            return None
        if self.dtype == "complex32":
            return self._half_complex(self.data)
        dtype = numpy_dtype(self.dtype)
        if dtype is None:
            return None
        count = math.prod(self.shape)
        if count * dtype.itemsize != len(self.data):
            return None
        return np.frombuffer(self.data, dtype).reshape(self.shape)

    def _half_complex(self, data: bytes) -> npt.NDArray[Any] | None:
        """Pairs of halves, which numpy lacks, as pairs of singles, which hold them exactly."""
        if math.prod(self.shape) * 4 != len(data):
            return None
        with np.errstate(all="ignore"):
            pairs = np.frombuffer(data, "<f2").astype(np.float32)
        return pairs.view(np.complex64).reshape(self.shape)


def without_bulk(seen: Observation | None) -> Observation | None:
    """An observation as reports show it: many are kept, and some travel between processes."""
    if seen is None or not seen.is_tensor:
        return seen
    short = seen.data is not None and len(seen.data) <= _SHOWN_BYTES
    return replace(seen, sketch=None, data=seen.data if short else None)


def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """The numpy dtype of a torch dtype; None for what numpy cannot hold."""
    if name in _TORCH_DTYPES:
        return np.dtype(_TORCH_DTYPES[name]).newbyteorder("<")
    if name in _ML_DTYPES:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
    return None


def observe(trace: Trace, columns: Columns, row: int, *, longest: int | None = None) -> Observation:
    """The observation in a row; the bytes of a tensor only up to ``longest`` of them.

    Raises:
        TraceFormatError: Its value is damaged.
    """
    kind = _KINDS[int(columns.kind[row])]
    sketch_row = int(columns.sketch_row[row])
    minimum, maximum, norm = columns.stats[row].tolist()
    kept = kind == Kind.TENSOR and (longest is None or columns.value_length[row] <= longest)
    return Observation(
        kind=kind,
        dtype=trace.strings[columns.dtype[row]].removeprefix("torch."),
        shape=trace.shapes[columns.shape[row]],
        device=trace.strings[columns.device[row]],
        digest=columns.digest[row].tobytes(),
        minimum=minimum,
        maximum=maximum,
        norm=norm,
        nonfinite=int(columns.nonfinite[row]),
        flags=_flags(int(columns.flags[row])),
        sketch=columns.sketches[sketch_row] if sketch_row >= 0 else None,
        data=trace.value(columns, row) if kept else None,
        plain=trace.scalar(columns, row) if kind != Kind.TENSOR else None,
        place=_place(trace, columns, row),
        layout=trace.strings[columns.layout[row]],
    )


def _place(
    trace: Trace, columns: Columns, row: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    if not columns.whole[row]:
        return None
    return trace.shapes[columns.offset[row]], trace.shapes[columns.whole[row]]
