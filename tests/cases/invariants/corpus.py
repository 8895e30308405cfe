"""The corpus: every bug with the place where it is, and the families of laws that can see it.

Families: U update, W write, G gradient cycle, P phase grammar, M mode, S shape and dtype, H
hyperparameters, D data, E equality, B bounds, R randomness, C collectives.
"""

from collections.abc import Callable
from dataclasses import dataclass

import gloo
import loops
import sequences


@dataclass(frozen=True, slots=True)
class Bug:
    """A training with a planted bug; with an empty word for the bug it is sound.

    Attributes:
        name: What `train` is told.
        train: The training, ``train(bug, seed)``, or ``train(bug, seed, rank)``.
        step: The first step that goes wrong, with the data of seed 0.
        phase: The part of that step.
        component: One of these is what goes wrong; an empty one is the root.
        families: Letters of the families that can find it.
        law: The built-in law that finds it without a reference; empty where none can.
        processes: How many processes train.
    """

    name: str
    train: Callable[..., None]
    step: int
    phase: str
    component: tuple[str, ...]
    families: str
    law: str = ""
    processes: int = 1


_BODY = ("body.weight",)
_PARAMETERS = ("body.weight", "optimizer[0]")

BUGS = (
    Bug("zero_grad missing", loops.train, 1, "gradient", _PARAMETERS, "GP", "gradients-cleared"),
    Bug("step missing", loops.train, 0, "optimizer", _PARAMETERS, "UGP", "updates-happen"),
    Bug("optimizer on copies", loops.train, 0, "optimizer", _PARAMETERS, "UG", "optimizer-holds"),
    Bug("loss detached", loops.train, 0, "backward", ("loss", *_PARAMETERS), "GUP", "loss-depends"),
    Bug("frozen", loops.train, 0, "state", _BODY, "UG"),
    Bug("training in eval mode", loops.train, 0, "state", ("", "norm"), "M", "train-mode"),
    Bug("train not restored", loops.train, 6, "state", ("", "norm"), "M", "train-mode"),
    Bug("scheduler not stepped", loops.train, 5, "scheduler", ("scheduler", "scheduler.last_epoch"),
        "HP", "schedule-followed"),
    Bug("rate per batch", loops.train, 0, "scheduler", ("scheduler", "scheduler.last_epoch"),
        "HP", "schedule-followed"),
    Bug("rate ten times", loops.train, 0, "optimizer", ("optimizer[0] group[0]",), "HU"),
    Bug("first batch again", loops.train, 1, "data", ("loader[0]",), "D", "batches-differ"),
    Bug("shuffle lost", loops.train, 0, "data", ("loader[0]",), "D"),
    Bug("order frozen", loops.train, 6, "data", ("loader[0]",), "D", "order-differs"),
    Bug("weight overwritten", loops.train, 7, "state", _BODY, "W", "writes-in-phase"),
    Bug("dropout in evaluation", loops.train, 5, "forward", ("Network", ""), "R"),
    Bug("gradients lost", loops.train, 4, "gradient", _PARAMETERS, "GU", "loss-depends"),
    Bug("cleared before the update", loops.train, 0, "gradient", _PARAMETERS, "GP", "loss-depends"),
    Bug("window off by one", loops.accumulate, 0, "optimizer", ("optimizer[0]",), "GP",
        "windows-alike"),
    Bug("overflow", loops.halved, 3, "loss", ("loss",), "B", "finite"),
    Bug("clipped before unscaled", loops.scaled, 0, "gradient", ("clip_grad_norm_",), "B",
        "clip-respected"),
    Bug("clipped too early", loops.clipped, 0, "gradient", ("clip_grad_norm_",), "BP",
        "clip-respected"),
    Bug("parameters replaced", loops.replaced, 0, "optimizer", _PARAMETERS, "UG",
        "optimizer-holds"),
    Bug("encoder frozen in place", loops.transposed, 0, "optimizer", ("0.weight",), "U",
        "parameters-move"),
    Bug("moments lost", loops.reloaded, 8, "state", ("optimizer[0]",), "WU", "moments-kept"),
    Bug("untied by a load", sequences.tied, 3, "state", ("head.weight",), "EW", "tied-equal"),
    Bug("untied at the start", sequences.tied, 0, "state", ("head.weight",), "EW", "tied-equal"),
    Bug("row drifts", sequences.drifting, 1, "state", ("embed.weight",), "W"),
    Bug("frozen late", sequences.staged, 0, "state", ("stem.weight",), "UW"),
    Bug("initialised twice", sequences.initialised, 0, "state", ("inner.own.weight",), "W"),
    Bug("evaluated first", sequences.lazy, 0, "state", ("scale",), "W"),
    Bug("escapes autocast", sequences.autocast, 0, "forward", ("2",), "SM"),
    Bug("batch merged", sequences.merged, 0, "forward", ("", "embed"), "S"),
    Bug("too long", sequences.writing, 2, "forward", ("", "Writer"), "BS", "length-respected"),
    Bug("workers alike", sequences.augmented, 1, "data", ("loader[0]",), "D", "workers-differ"),
    Bug("clipped on one rank", gloo.train, 0, "gradient",
        ("0.weight", "clip_grad_norm_"), "EP", "replicas-equal", 2),
    Bug("wrapper bypassed", gloo.train, 0, "gradient", ("0.weight",), "E", "replicas-equal", 2),
    Bug("hooks lost", gloo.train, 0, "gradient", ("0.weight",), "E", "replicas-equal", 2),
    Bug("replica corrupted", gloo.train, 3, "state", ("2.weight",), "EW", "writes-in-phase", 2),
    Bug("rate on one rank", gloo.accumulated, 0, "scheduler",
        ("optimizer[0] group[0]", "scheduler"), "EH", "replicas-equal", 2),
    Bug("set_epoch missing", gloo.train, 4, "data", ("loader[0]",), "D", "order-differs", 2),
    Bug("shards overlap", gloo.train, 2, "data", ("loader[0]",), "D", "ranks-disjoint", 2),
    Bug("no sampler", gloo.train, 0, "data", ("loader[0]",), "D", "ranks-disjoint", 2),
    Bug("unequal exchange", gloo.experts, 0, "forward", ("expert", "", "all_to_all_single"), "CS",
        "", 2),
)  # fmt: skip

SOUND: tuple[tuple[Callable[..., None], int], ...] = (
    *((train, 1) for train in dict.fromkeys(bug.train for bug in BUGS if bug.processes == 1)),
    *((train, 2) for train in dict.fromkeys(bug.train for bug in BUGS if bug.processes == 2)),
    (gloo.local, 2),
)
"""The clean twin of each training, and how many processes it has."""
