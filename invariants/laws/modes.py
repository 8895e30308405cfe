"""The law of modes: what is trained is in train mode."""

from collections.abc import Iterator

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.laws import held
from traceparity.invariants.state import different
from traceparity.invariants.tables import Gradient
from traceparity.tracefmt.records import Phase

TRAIN_MODE = Rule(
    "mode",
    "train-mode",
    "a model that is trained and depends on its mode is in train mode",
    "was model.train() left out after an evaluation, after loading, or altogether?",
)
_DROPOUTS = (
    "Dropout",
    "AlphaDropout",
    "FeatureAlphaDropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
)
_NORMS = (
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "LazyBatchNorm1d",
    "LazyBatchNorm2d", "LazyBatchNorm3d",
)  # fmt: skip


class TrainMode:
    """A root in eval mode with all that is in it, which holds dropout or batch norm, is updated."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._modules = 0
        self._roots: dict[str, list[int]] = {}

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step."""
        if not facts.updated:
            return
        self._group(facts)
        for root, members in self._roots.items():
            number = facts.names.module(root)
            if number is None or facts.training[number] != 0:
                self._told.discard(root)
                continue
            if root in self._told:
                continue
            training = facts.training[members]
            sensitive = self._sensitive(facts, members)
            if sensitive and not (training == 1).any() and self._is_updated(facts, root):
                self._told.add(root)
                yield facts.finding(
                    TRAIN_MODE, Phase.STATE, root, "training", "train mode",
                    f"eval mode, with {facts.state.classes[sensitive[0]]} at {sensitive[0]} in it",
                    others=tuple(sensitive[:held.MOST]), more=max(0, len(sensitive) - held.MOST),
                )  # fmt: skip

    def _group(self, facts: StepFacts) -> None:
        """Modules by root, whenever there are more of them."""
        if len(facts.names.modules) == self._modules:
            return
        self._modules = len(facts.names.modules)
        self._roots = {}
        for number, path in enumerate(facts.names.modules):
            self._roots.setdefault(held.root_of(facts, path), []).append(number)

    def _sensitive(self, facts: StepFacts, members: list[int]) -> list[str]:
        """Modules that work otherwise in eval mode."""
        found = []
        for number in members:
            path = facts.names.modules[number]
            kind = facts.state.classes.get(path, "")
            settings = facts.state.settings.get(path)
            settings = settings if isinstance(settings, dict) else {}
            if (kind in _DROPOUTS and settings.get("p")) or (
                kind in _NORMS and settings.get("track_running_stats", True)
            ):
                found.append(path)
        return found

    def _is_updated(self, facts: StepFacts, root: str) -> bool:
        received = facts.received
        trained = different(received.tensor[received.kind != Gradient.NONE])
        names = facts.names.tensors
        return any(held.root_of(facts, names[tensor]) == root for tensor in trained.tolist())

    def end(self) -> Iterator[Finding]:
        """Nothing is left to say."""
        return iter(())
