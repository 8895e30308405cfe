"""Evidence for a loss that is put together from micro-batches."""

from collections.abc import Iterator

from traceparity.differ.candidates import Candidate
from traceparity.differ.joined_trace import JoinedTrace
from traceparity.differ.result import Divergence, Evidence
from traceparity.differ.step_pair import Side, StepPair
from traceparity.differ.update_evidence import number_of
from traceparity.differ.window_rows import WindowRows
from traceparity.tracefmt.records import Phase

_SHOWN = 8
_ROUND_OFF = 1e-3
_NEAR = 0.1


def micro_batch_losses(pair: StepPair, divergence: Divergence) -> Iterator[Evidence]:
    """The losses of the micro-batches, how many samples each is of, and a telling ratio."""
    counts = []
    for name, side, step in (
        ("reference", pair.reference_side, pair.reference_step),
        ("target", pair.target_side, pair.target_step),
    ):
        window = _window(pair, side, step)
        counts.append(window.count if window else 1)
        if window and window.count > 1 and (detail := _listed(window, divergence)):
            yield Evidence("micro_batches", None, f"micro-batches of the {name}: {detail}")
    values = number_of(divergence.reference), number_of(divergence.target)
    if values[0] and values[1]:
        ratio, expected = values[1] / values[0], counts[1] / counts[0]
        if expected != 1 and abs(ratio / expected - 1) < _NEAR:
            detail = (
                f"the target's loss is {ratio:.3g} times the reference's, with {counts[1]} "
                f"micro-batches against {counts[0]}"
            )
            yield Evidence("loss", False, detail)


def rounding(pair: StepPair, candidate: Candidate, divergence: Divergence) -> Iterator[Evidence]:
    """That a small difference was judged exactly, though sums over micro-batches round anew."""
    if pair.policy.align.kind != "accumulation" or not pair.sites.rule(candidate.site).exact:
        return
    sizes = divergence.metrics.rel_l2, divergence.metrics.max_rel
    if any(size is not None and 0 < size < _ROUND_OFF for size in sizes):
        detail = (
            "it was compared exactly, and sums over micro-batches round in another way: declare a "
            "tolerance, as --policy accumulation does"
        )
        yield Evidence("tolerance", None, detail)


def _window(pair: StepPair, side: Side, step: int) -> WindowRows | None:
    if not isinstance(side.trace, JoinedTrace):
        return None
    return WindowRows(side.trace.source, side.steps.entries[step], pair.sites, side.steps.table)


def _listed(window: WindowRows, divergence: Divergence) -> str:
    for _, group in window.of_phase(Phase.LOSS, divergence.field):
        arrays = [window.array(row) for row in group.rows.values()]
        if all(array is not None and array.size == 1 for array in arrays):
            losses = [f"{float(array.reshape(())):.6g}" for array in arrays if array is not None]
            more = ", ..." if len(losses) > _SHOWN else ""
            text = f"losses {', '.join(losses[:_SHOWN])}{more}"
            if window.sizes:
                sizes = ", ".join(map(str, window.sizes[:_SHOWN]))
                text += f" of {sizes}{more} samples"
            return text
    return ""
