"""Observations and distances in words."""

from traceparity.differ.metrics import Metrics
from traceparity.differ.observation import Observation
from traceparity.differ.result import MICRO_BATCHES, Divergence
from traceparity.tracefmt.records import Kind

_SHOWN_TEXT = 200
_SHOWN_ELEMENTS = 4


def describe(seen: Observation | None) -> str:
    """An observation in one line."""
    if seen is None:
        return "absent"
    if not seen.is_tensor:
        return _describe_plain(seen)
    text = f"{seen.dtype} {_form(seen)}"
    if seen.device not in ("", "cpu"):
        text += f" on {seen.device}"
    array = seen.array()
    if array is not None and 0 < array.size <= _SHOWN_ELEMENTS:
        values = ", ".join(_number(value) for value in array.ravel().tolist())
        return f"{text}  {values}" if array.size == 1 else f"{text}  [{values}]"
    if seen.minimum == seen.minimum:
        text += f"  {seen.minimum:.4g} to {seen.maximum:.4g}"
    if seen.norm == seen.norm:
        text += "," if seen.minimum == seen.minimum else " "
        text += f" norm {seen.norm:.6g}"
    if seen.nonfinite:
        text += f", {seen.nonfinite} not finite"
    return text


def _describe_plain(seen: Observation) -> str:
    if seen.kind == Kind.SAMPLE_IDS and isinstance(seen.plain, list):
        text = f"samples {', '.join(map(str, seen.plain))}"
    else:
        text = _number(seen.plain)
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}..."


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def _form(seen: Observation) -> str:
    """The shape of a tensor, and of a shard its place in the whole."""
    if seen.place is None:
        return _shape(seen.shape)
    offset, whole = seen.place
    return f"{_shape(seen.shape)} at {list(offset)} of {_shape(whole)}"


def _number(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else repr(value)


def describe_size(found: Divergence) -> str:
    """What differs and by how much."""
    if found.field == MICRO_BATCHES:
        return found.evidence[0].detail
    if found.kind in ("missing", "extra"):
        lacking = "target" if found.kind == "missing" else "reference"
        return f"the {lacking} has no such value"
    if found.reference is None or found.target is None:
        return ""
    left, right = found.reference, found.target
    if found.kind == "dtype":
        return f"{left.dtype} against {right.dtype}{_beside_dtype(found.metrics)}"
    if found.kind == "shape":
        return f"{_form(left)} against {_form(right)}"
    if found.kind == "device":
        return f"{left.device} against {right.device}"
    if describe_metrics(found.metrics):
        return describe_metrics(found.metrics)
    return "size unknown; record values to see it" if left.is_tensor else ""


def _beside_dtype(metrics: Metrics) -> str:
    """How the values compare of which the dtypes differ."""
    if metrics.unequal == 0:
        return ", of equal values"
    size = describe_metrics(metrics)
    return f", values differ: {size}" if size else ""


def describe_metrics(metrics: Metrics) -> str:
    """The distance in one line; empty where it is not known."""
    parts = []
    if metrics.rel_l2 is not None:
        about = "about " if metrics.estimated else ""
        parts.append(f"relative L2 {about}{metrics.rel_l2:.2g}")
    if metrics.max_abs is not None:
        parts.append(f"largest {metrics.max_abs:.6g}")
    if metrics.max_rel is not None and metrics.rel_l2 is None:
        parts.append(f"relative {metrics.max_rel:.2g}")
    if metrics.unequal and metrics.elements and metrics.elements > 1:
        parts.append(
            f"{metrics.unequal} of {metrics.elements} elements, first {metrics.first_index}"
        )
    return ", ".join(parts)


def describe_more(metrics: Metrics) -> str:
    """Further measures of a distance in one line; empty where none is known."""
    parts = []
    if metrics.max_rel is not None and metrics.rel_l2 is not None:
        parts.append(f"largest relative {metrics.max_rel:.2g}")
    if metrics.ulp is not None:
        parts.append(f"{metrics.ulp:,} ULP")
    if metrics.cosine is not None and metrics.elements != 1:
        parts.append(f"cosine {metrics.cosine:.6g}")
    for name, counts in (("NaN", metrics.nans), ("infinite", metrics.infinities)):
        if counts and any(counts):
            parts.append(f"{name} {counts[0]} against {counts[1]}")
    return ", ".join(parts)
