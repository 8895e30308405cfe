"""Batches of a step, put together from their rows."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import xxhash

from traceparity.invariants.roles import Role
from traceparity.invariants.tables import Batch
from traceparity.tracefmt.records import Flag, Kind

if TYPE_CHECKING:
    from traceparity.invariants.facts import StepFacts

_ROLES = (Role.BATCH, Role.SAMPLE_IDS, Role.SAMPLE_DIGESTS, Role.BATCH_FACT)
_NUMBERS = ("epoch", "index", "worker", "dataset_length")


def batches_of(facts: "StepFacts") -> Iterator[Batch]:
    """The batches in a step, in order."""
    rows = sorted(row for role in _ROLES for row in facts.rows(role).tolist())
    batch: Batch | None = None
    leaves: list[int] = []
    for row in rows:
        role = Role(int(facts.names.role[facts.columns.site[row]]))
        # The facts of a batch come after its leaves and IDs, so that those begin another one.
        if batch is None or (role in (Role.BATCH, Role.SAMPLE_IDS) and batch.index is not None):
            if batch is not None:
                yield _with_leaves(facts, batch, leaves)
            batch, leaves = _begun(facts, row), []
        if role == Role.BATCH:
            leaves.append(row)
        else:
            batch = replace(batch, **_fact(role, facts.field(row), facts.scalar(row)))
    if batch is not None:
        yield _with_leaves(facts, batch, leaves)


def _begun(facts: "StepFacts", row: int) -> Batch:
    trained = not int(facts.columns.flags[row]) & Flag.CONTEXT
    return Batch(row, facts.component(row), int(facts.columns.microbatch[row]), trained)


def _fact(role: Role, name: str, value: Any) -> dict[str, Any]:
    if role == Role.SAMPLE_IDS:
        if not isinstance(value, list):
            return {}
        ids = tuple(tuple(each) if isinstance(each, list) else each for each in value)
        return {"ids": ids, "size": len(ids)}
    if role == Role.SAMPLE_DIGESTS:
        return {"sample_digests": tuple(value)} if isinstance(value, list) else {}
    return {name: value} if name in _NUMBERS and isinstance(value, int) else {}


def _with_leaves(facts: "StepFacts", batch: Batch, rows: list[int]) -> Batch:
    columns = facts.columns
    tensors = [row for row in rows if columns.kind[row] == Kind.TENSOR]
    if not tensors:
        return batch
    content = xxhash.xxh3_128_digest(columns.digest[tensors].tobytes())
    size = batch.size
    if size is None:
        sizes = {shape[0] for row in tensors if (shape := facts.shape(row))}
        size = sizes.pop() if len(sizes) == 1 else None
    return replace(batch, content=content, size=size)
