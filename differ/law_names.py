"""Names of the built-in laws, which policies declare and `invariants` judges.

The differ knows nothing of invariants; a test compares the names with those of the laws.
"""

LAW_NAMES = (
    "updates-happen",
    "optimizer-holds",
    "parameters-move",
    "moments-kept",
    "gradients-cleared",
    "loss-depends",
    "windows-alike",
    "writes-in-phase",
    "train-mode",
    "schedule-followed",
    "batches-differ",
    "order-differs",
    "workers-differ",
    "ranks-disjoint",
    "tied-equal",
    "replicas-equal",
    "clip-respected",
    "length-respected",
)
ALL_LAWS = "all"
"""Stands for those laws that have no word of their own."""
LAW_WORDS = ("verdict", "advice", "off")
"""What a law may be: it decides, it explains beside the verdict, or it is not applied."""
