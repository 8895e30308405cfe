"""Batches of a step, put together from their rows."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import xxhash

from traceparity.invariants.roles import Role
from traceparity.invariants.tables import Batch
from traceparity.tracefmt.records import Flag, Kind

if TYPE_CHECKING:
    from traceparity.invariants.facts import StepFacts

# Plain numbers: to look up members of an enum takes as long as the rest.
_LEAF, _IDS, _FACT = int(Role.BATCH), int(Role.SAMPLE_IDS), int(Role.BATCH_FACT)
_SAMPLER = int(Role.SAMPLER)
_ROLES = (Role.BATCH, Role.SAMPLE_IDS, Role.SAMPLE_DIGESTS, Role.BATCH_FACT, Role.SAMPLER)
_CONTEXT = int(Flag.CONTEXT)
_NUMBERS = ("epoch", "index", "worker", "dataset_length")


def batches_of(facts: "StepFacts") -> Iterator[Batch]:
    """The batches in a step, in order."""
    rows = sorted(row for role in _ROLES for row in facts.rows(role).tolist())
    role_of, sites = facts.names.role, facts.columns.site
    said: dict[str, Any] = {}
    leaves: list[int] = []
    for row in rows:
        role = int(role_of[sites[row]])
        # The facts of a batch come after its leaves and IDs, so that those begin another one.
        if not said or ("index" in said and role in (_LEAF, _IDS)):
            if said:
                yield _batch(facts, said, leaves)
            said, leaves = {"row": row}, []
        if role == _LEAF:
            leaves.append(row)
        else:
            _say(said, role, facts.field(row), facts.scalar(row))
    if said:
        yield _batch(facts, said, leaves)


def _say(said: dict[str, Any], role: int, name: str, value: Any) -> None:
    if role == _FACT:
        if name in _NUMBERS:
            said[name] = value if isinstance(value, int) else None
    elif role == _SAMPLER:
        said["sampler"] = value if isinstance(value, dict) else None
    elif isinstance(value, list):
        if role == _IDS:
            ids = tuple(tuple(each) if isinstance(each, list) else each for each in value)
            said["ids"], said["size"] = ids, len(ids)
        else:
            said["sample_digests"] = tuple(value)


def _batch(facts: "StepFacts", said: dict[str, Any], leaves: list[int]) -> Batch:
    columns, row = facts.columns, said["row"]
    tensors = [leaf for leaf in leaves if columns.kind[leaf] == Kind.TENSOR]
    if tensors:
        said["content"] = xxhash.xxh3_128_digest(columns.digest[tensors].tobytes())
    if tensors and "size" not in said:
        sizes = {shape[0] for leaf in tensors if (shape := facts.shape(leaf))}
        said["size"] = sizes.pop() if len(sizes) == 1 else None
    return Batch(
        loader=facts.component(row),
        microbatch=int(columns.microbatch[row]),
        trained=not int(columns.flags[row]) & _CONTEXT,
        **said,
    )
