"""The pack of built-in laws. Where each one does not apply is told in docs/reference/laws.md."""

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
    Law(updates.UPDATES_HAPPEN, updates.UpdatesHappen),
    Law(updates.OPTIMIZER_HOLDS, updates.OptimizerHolds),
    Law(updates.PARAMETERS_MOVE, updates.ParametersMove),
    Law(updates.MOMENTS_KEPT, updates.MomentsKept),
    Law(gradients.GRADIENTS_CLEARED, gradients.GradientsCleared),
    Law(gradients.LOSS_DEPENDS, gradients.LossDepends),
    Law(gradients.WINDOWS_ALIKE, gradients.WindowsAlike),
    Law(writes.WRITES_IN_PHASE, writes.WritesInPhase),
    Law(modes.TRAIN_MODE, modes.TrainMode),
    Law(schedules.SCHEDULE_FOLLOWED, schedules.ScheduleFollowed),
    Law(batches.BATCHES_DIFFER, batches.BatchesDiffer),
    Law(batches.ORDER_DIFFERS, batches.OrderDiffers),
    Law(batches.WORKERS_DIFFER, batches.WorkersDiffer),
    Law(shards.RANKS_DISJOINT, judge_ranks=shards.RanksDisjoint),
    Law(ties.TIED_EQUAL, ties.TiedEqual),
    Law(replicas.REPLICAS_EQUAL, judge_ranks=replicas.ReplicasEqual),
    Law(bounds.CLIP_RESPECTED, bounds.ClipRespected),
    Law(bounds.LENGTH_RESPECTED, bounds.LengthRespected),
    Law(bounds.FINITE, bounds.Finite),
)
"""All built-in laws, in the order of their families."""
