"""U, the update law: which parameters are trained, held by an optimizer, and changed by it."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from traceparity.invariants.facts import StepFacts
from traceparity.invariants.roles import Role
from traceparity.invariants.state import Ids, Mask
from traceparity.invariants.subjects import BOOLS, KIND, Subjects
from traceparity.invariants.tables import Gradient
from traceparity.invariants.template import Event, Template
from traceparity.tracefmt.records import Phase

Floats = npt.NDArray[np.float64]
_ADAPTIVE = ("Adam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "Lion", "LAMB", "Muon")
_EPSILON = {"float64": 2.3e-16, "float32": 1.2e-7, "bfloat16": 7.9e-3, "float16": 9.8e-4}
_CLEARLY = 8
_LOST = 1e-9
_GRADIENTS = tuple(each.name.lower() for each in Gradient)

TRAINABLE = Template(
    id="update.trainable",
    phase=Phase.STATE,
    noun="parameters",
    says={True: "require gradients", False: "are frozen"},
    fields=KIND,
    scope=("class",),
    needs=(Phase.STATE,),
    hint="requires_grad was switched: look for freezing code, and when it runs",
    shows="requires_grad",
)
HELD = Template(
    id="update.held",
    phase=Phase.STATE,
    noun="parameters",
    says={True: "are held by an optimizer", False: "are held by no optimizer"},
    fields=("requires_grad", *KIND),
    scope=("requires_grad",),
    proposed=(True,),
    needs=(Phase.STATE, Phase.OPTIMIZER),
    hint="the optimizer was made from other tensors: after a copy, a move, a wrapper or a filter",
    shows="group",
)
STRANGERS = Template(
    id="update.strangers",
    phase=Phase.STATE,
    noun="optimizers",
    says={
        False: "hold parameters of the modules that run only",
        True: "hold tensors that no module has",
    },
    fields=("optimizer",),
    scope=("optimizer",),
    needs=(Phase.STATE, Phase.OPTIMIZER),
    hint="the optimizer holds copies of the parameters, which no forward pass uses",
    shows="group",
)
CHANGES = Template(
    id="update.changes",
    phase=Phase.OPTIMIZER,
    noun="parameters at an update",
    says={True: "change", False: "stay as they are"},
    fields=("gradient", "optimizer", *KIND),
    scope=("gradient",),
    needs=(Phase.GRADIENT, Phase.OPTIMIZER),
    hint="the update had no effect: look at the learning rate, the gradient and the optimizer",
    shows="value",
)
COUNTED = Template(
    id="update.counted",
    phase=Phase.OPTIMIZER,
    noun="step counters of optimizers at an update",
    says={True: "go up by one", False: "do not go up by one"},
    fields=("optimizer",),
    scope=("optimizer",),
    needs=(Phase.OPTIMIZER,),
    hint="the state of the optimizer was lost or replaced: look at what loads it",
    shows="step",
)


class Observer:
    """What happens to parameters."""

    def __init__(self) -> None:
        self._subjects = Subjects()
        self._sizes = _Sizes()
        self._is_counter: Mask = np.zeros(0, bool)
        self._count: Floats = np.zeros(0, np.float64)
        self._grouped = 0
        self._key: tuple[bytes, int, int] | None = None
        self._of_group: tuple[list[str], Ids] = [], np.zeros(0, np.int64)

    def step(self, facts: StepFacts) -> Iterator[Event]:
        """The events of a step."""
        state, subjects = facts.state, self._subjects
        if facts.first or len(facts.rows(Role.REQUIRES_GRAD)):
            parameters = np.flatnonzero(state.is_parameter)
            trained = state.requires_grad[parameters].astype(np.int64)
            yield from subjects.events(facts, TRAINABLE, parameters, (trained, BOOLS))
        if facts.updated:
            if facts.first or len(facts.rows(Role.GROUP)) or not self._grouped:
                yield from self._held(facts)
            yield from self._changes(facts)
            yield from self._counters(facts)

    def _held(self, facts: StepFacts) -> Iterator[Event]:
        state = facts.state
        self._grouped = len(state.group)
        parameters = np.flatnonzero(state.is_parameter)
        held = np.isin(parameters, list(state.group)).astype(np.int64)
        wanted = state.requires_grad[parameters].astype(np.int64)
        yield from self._subjects.events(facts, HELD, parameters, (held, BOOLS), [(wanted, BOOLS)])
        known = set(parameters.tolist())
        for optimizer in facts.updated:
            strange = [
                facts.names.tensors[tensor]
                for tensor, group in state.group.items()
                if tensor not in known and group.startswith(optimizer)
            ]
            yield Event(
                STRANGERS,
                (state.classes.get(optimizer, ""),),
                bool(strange),
                component=strange[0] if strange else optimizer,
                members=strange.copy if strange else None,
            )

    def _counters(self, facts: StepFacts) -> Iterator[Event]:
        """Whether ``step[P]`` in the optimizers' state is one more than at the update before."""
        sites = facts.source.sites
        if len(self._count) < len(sites):
            new = [entry.site.field.startswith("step[") for entry in sites[len(self._count) :]]
            self._is_counter = np.concatenate([self._is_counter, np.array(new, bool)])
            self._count = np.concatenate([self._count, np.full(len(new), np.nan)])
        rows = facts.rows(Role.OPTIMIZER_STATE)
        at = facts.columns.site[rows]
        wanted = self._is_counter[at] & (facts.phase(rows) == Phase.OPTIMIZER)
        rows, at = rows[wanted], at[wanted]
        before, now = self._count[at], facts.columns.stats[rows, 0].astype(np.float64)
        self._count[at] = now
        known = ~(np.isnan(before) | np.isnan(now))
        if facts.gap or not known.any():
            return
        wrong = np.flatnonzero(known & (now != before + 1))
        row = int(rows[wrong[0]] if len(wrong) else rows[0])
        optimizer = facts.component(row)
        seen = f"{before[wrong[0]]:g} became {now[wrong[0]]:g}" if len(wrong) else ""
        kind = facts.state.classes.get(optimizer, "")
        yield Event(COUNTED, (kind,), not len(wrong), component=optimizer, row=row, seen=seen)

    def _groups(self, facts: StepFacts, tensors: Ids) -> tuple[list[str], Ids]:
        """The groups of an update, and for each tensor the number of its group."""
        key = tensors.tobytes(), len(facts.state.group), len(facts.rows(Role.GROUP)) and facts.step
        if key != self._key:
            names = [facts.state.group.get(tensor, "") for tensor in tensors.tolist()]
            groups = list(dict.fromkeys(names))
            places = {group: at for at, group in enumerate(groups)}
            self._of_group = groups, np.array([places[name] for name in names], np.int64)
            self._key = key
        return self._of_group

    def _changes(self, facts: StepFacts) -> Iterator[Event]:
        if facts.skipped:
            return
        rows, received, state = facts.update_rows, facts.received, facts.state
        tensors = facts.values.tensor[rows]
        kinds = np.full(len(facts.names.tensors), Gradient.UNKNOWN, np.int64)
        kinds[received.tensor] = received.kind
        norms = np.zeros(len(facts.names.tensors), np.float64)
        norms[received.tensor] = np.nan_to_num(received.norm)
        groups, group = self._groups(facts, tensors)
        classes = [state.classes.get(name.partition(" ")[0], "") for name in groups]
        rates = np.array([facts.rates_used.get(name, 0.0) for name in groups], np.float64)[group]
        adaptive = np.array([_is_adaptive(name) for name in classes], bool)[group]
        shown = self._sizes.shown(facts, rows, norms[tensors], rates, adaptive)
        # Only an update that the numbers can hold has to show; with zeros momentum may move on.
        judged = shown & (kinds[tensors] == Gradient.NONZERO)
        judged |= kinds[tensors] == Gradient.NONE
        labels = sorted(set(classes))
        of_class = np.array([labels.index(name) for name in classes], np.int64)[group]
        changed = facts.values.changed[rows].astype(np.int64)
        yield from self._subjects.events(
            facts,
            CHANGES,
            tensors[judged],
            (changed[judged], BOOLS),
            [(kinds[tensors][judged], _GRADIENTS), (of_class[judged], labels)],
            facts.values.row[rows][judged],
        )


def _is_adaptive(optimizer: str) -> bool:
    return any(part in optimizer for part in _ADAPTIVE)


class _Sizes:
    """Precision of each dtype and root of the size of each shape of a trace, by their ids."""

    def __init__(self) -> None:
        self._precision: Floats = np.zeros(0, np.float64)
        self._root: Floats = np.zeros(0, np.float64)

    def shown(
        self, facts: StepFacts, rows: Ids, norms: Floats, rates: Floats, adaptive: Mask
    ) -> Mask:
        """Which updates are large enough for the parameters' precision, by their usual size."""
        strings, shapes = facts.source.strings, facts.source.shapes
        if len(self._precision) < len(strings):
            self._precision = np.array([_EPSILON.get(name, np.inf) for name in strings])
        if len(self._root) < len(shapes):
            self._root = np.sqrt(np.array([float(math.prod(shape)) for shape in shapes]))
        at = facts.values.row[rows]
        precision = self._precision[facts.columns.dtype[at]]
        root = self._root[facts.columns.shape[at]]
        # An adaptive optimizer divides by the size of the gradient, if its eps does not hide it.
        size = np.where(adaptive, rates * root * (norms > _LOST * root), rates * norms)
        shown: Mask = size > _CLEARLY * precision * facts.values.norm[rows]
        return shown


TEMPLATES = (TRAINABLE, HELD, STRANGERS, CHANGES, COUNTED)
