"""Which traces of two runs of several processes answer each other, as the policy declares."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from traceparity.differ.policy import Policy

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace

Run = Mapping[int, "Trace"]
Pair = tuple[int, "Trace", "Trace"]
_OF_EACH_RANK = ("forward", "loss", "backward")
"""Phases that tell of a rank's own part of a batch, which has no counterpart in another split."""


@dataclass(frozen=True, slots=True)
class Relation:
    """How two runs are compared.

    Attributes:
        pairs: Rank, trace of the reference and trace of the target.
        policy: The policy for each pair.
        samples_together: Whether the samples of a step are judged over all ranks.
        lacking: Why a pair is missing.
        notes: What is left out.
    """

    pairs: tuple[Pair, ...]
    policy: Policy
    samples_together: bool = False
    lacking: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def relate(reference: Run, target: Run, policy: Policy) -> Relation:
    """Line up the ranks of two runs."""
    if policy.align.ranks == "one_to_one":
        return _one_to_one(reference, target, policy)
    lacking: tuple[str, ...] = ()
    if policy.align.ranks == "sharded":
        lacking = tuple(
            reason
            for reason in (
                _needless(policy),
                _not_put_together("reference", reference),
                _not_put_together("target", target),
            )
            if reason
        )
        pairs = () if lacking else _gathered(reference, target)
    else:
        first = reference[min(reference)]
        pairs = tuple((rank, first, trace) for rank, trace in target.items())
    phases = policy.align.phases
    left_out = [phase for phase in _OF_EACH_RANK if phase in phases]
    kept = tuple(phase for phase in phases if phase not in (*_OF_EACH_RANK, "data"))
    note = f"{', '.join(left_out)}: of each rank's own samples, so they are not compared"
    return Relation(
        pairs,
        replace(policy, align=replace(policy.align, phases=kept)),
        samples_together="data" in phases,
        lacking=lacking,
        notes=(note,) if left_out else (),
    )


def _one_to_one(reference: Run, target: Run, policy: Policy) -> Relation:
    if len(reference) == len(target) == 1:
        # Single traces answer each other whatever their file names say of ranks.
        ours, theirs = next(iter(reference.values())), next(iter(target.values()))
        return Relation(((theirs.header.rank, ours, theirs),), policy)
    lacking: tuple[str, ...] = ()
    if set(reference) != set(target):
        ranks = [", ".join(map(str, run)) for run in (reference, target)]
        known = f"the reference has ranks {ranks[0]} and the target ranks {ranks[1]}"
        lacking = (f'{known}; declare the relation with align.ranks = "replicated" or "sharded"',)
    pairs = ((rank, reference[rank], target[rank]) for rank in reference if rank in target)
    return Relation(tuple(pairs), policy, lacking=lacking)


def _needless(policy: Policy) -> str:
    if policy.align.kind != "accumulation":
        return ""
    needless = "with sharded ranks nothing of single micro-batches is compared"
    return f'{needless}: align.kind = "start" compares such runs update by update'


def lacking_ranks(name: str, run: Run) -> str:
    """Of which ranks of a run there are no traces; empty where all are there."""
    world = max(trace.header.world_size for trace in run.values())
    if len(run) >= world:
        return ""
    return f"the {name} has the traces of {len(run)} of {world} ranks"


def _not_put_together(name: str, run: Run) -> str:
    lacking = lacking_ranks(name, run)
    return lacking and f"{lacking}; sharded tensors are put together from those of all"


def _gathered(reference: Run, target: Run) -> tuple[Pair, ...]:
    from traceparity.differ.gathered_trace import GatheredTrace
    from traceparity.differ.shard_parts import sharded_things

    things = sharded_things(reference.values()) | sharded_things(target.values())
    first, same_ranks = min(target), set(reference) == set(target)
    pairs: list[Pair] = []
    for rank in target:
        # What is sharded is put together once; each rank's other values stand for themselves.
        without = None if rank == first else things
        view = rank if same_ranks else min(reference)
        pairs.append(
            (
                rank,
                GatheredTrace(reference, view, without=without),
                GatheredTrace(target, rank, without=without),
            )
        )
    return tuple(pairs)


def conflicts_of(*traces: "Trace") -> list[str]:
    """Where ranks of a run hold unequal ones of what should be one shard."""
    found = sorted(item for trace in traces for item in getattr(trace, "conflicts", {}).items())
    return [f"{found[0][1]}, so there is no one value to compare"] if found else []
