"""The pack of built-in laws."""

from traceparity.invariants.laws import (
    batches,
    bounds,
    gradients,
    modes,
    replicas,
    schedules,
    shards,
    ties,
    updates,
    writes,
)
from traceparity.invariants.laws.law import Law

LAWS: tuple[Law, ...] = (
    Law(
        updates.UPDATES_HAPPEN,
        ("an optimizer that waits its turn, as a generator's does",),
        updates.UpdatesHappen,
    ),
    Law(
        updates.OPTIMIZER_HOLDS,
        (
            "master copies, which receive gradients of their own",
            "models of which no optimizer holds a part (critics, teachers, adversaries)",
            "parameters that the program updates by hand",
        ),
        updates.OptimizerHolds,
    ),
    Law(
        updates.PARAMETERS_MOVE,
        (
            "a rate of zero, a skipped update, a gradient that is zero or none",
            "updates smaller than the precision of the parameter",
            "updates that an optimizer gathers before it applies them",
        ),
        updates.ParametersMove,
    ),
    Law(
        updates.MOMENTS_KEPT,
        ("parameters that begin anew or were rolled back in the same step",),
        updates.MomentsKept,
    ),
    Law(
        gradients.GRADIENTS_CLEARED,
        (
            "micro-batches of one update",
            "gradients that gather in a model while another one is trained",
            "closures, which clear within the update",
        ),
        gradients.GradientsCleared,
    ),
    Law(
        gradients.LOSS_DEPENDS,
        ("several optimizers of which one has nothing to do in a step",),
        gradients.LossDepends,
    ),
    Law(
        gradients.WINDOWS_ALIKE,
        ("several optimizers", "a run that goes on from a checkpoint", "a short window at the end"),
        gradients.WindowsAlike,
    ),
    Law(
        writes.WRITES_IN_PHASE,
        (
            "what happens after most updates: weights kept in a range, masks",
            "what changes all parameters of a model: averages, swaps, resets",
            "checkpoints that were loaded",
        ),
        writes.WritesInPhase,
    ),
    Law(
        modes.TRAIN_MODE,
        (
            "models without dropout and batch norm",
            "single modules in eval mode, as batch norm is in fine-tuning",
            "a frozen model around an adapter in train mode",
        ),
        modes.TrainMode,
    ),
    Law(
        schedules.SCHEDULE_FOLLOWED,
        (
            "runs of less than two epochs",
            "SWALR, which waits for the average to begin",
            "rates that are set by hand",
        ),
        schedules.ScheduleFollowed,
    ),
    Law(
        batches.BATCHES_DIFFER,
        (
            "datasets of one batch, or of samples that are all alike",
            "sampling with replacement",
            "several updates on one batch that was fetched once",
        ),
        batches.BatchesDiffer,
    ),
    Law(
        batches.ORDER_DIFFERS,
        ("loaders that do not shuffle", "datasets of less than six samples"),
        batches.OrderDiffers,
    ),
    Law(
        batches.WORKERS_DIFFER,
        ("batches in which samples are alike",),
        batches.WorkersDiffer,
    ),
    Law(ties.TIED_EQUAL, ("layers that begin as copies of one another",), ties.TiedEqual),
    Law(
        replicas.REPLICAS_EQUAL,
        (
            "processes whose models do not begin alike, and sharded parameters",
            "replicas that meet again, as where parameters are averaged every few steps",
        ),
        judge_ranks=replicas.ReplicasEqual,
    ),
    Law(
        shards.RANKS_DISJOINT,
        (
            "a few samples that make the parts equal in size",
            "sampling with replacement",
            "sharded parameters, whose processes share a batch",
        ),
        judge_ranks=shards.RanksDisjoint,
    ),
    Law(
        bounds.FINITE,
        ("gradients of updates that a gradient scaler left out",),
        bounds.Finite,
    ),
    Law(
        bounds.CLIP_RESPECTED,
        ("several calls in one step, or several optimizers",),
        bounds.ClipRespected,
    ),
    Law(bounds.LENGTH_RESPECTED, (), bounds.LengthRespected),
)
"""All built-in laws, in the order of their families."""
