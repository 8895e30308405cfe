"""Facts: one step of one process as typed tables, read in one pass over the trace.

A family of invariants, or a built-in law, is fed step after step and keeps what it must remember:

    class RatesStayPositive:
        def step(self, facts: StepFacts) -> Iterator[Finding]:
            for group, rate in facts.rates_used.items():
                if rate < 0:
                    yield facts.finding(RULE, Phase.OPTIMIZER, group, "lr", "not negative", rate)

        def end(self) -> Iterator[Finding]:
            return iter(())

    for facts in read_run(open_run("a.trace")):     # by step, then by rank
        ...

`StepFacts.rows` gives the rows of a `Role` where no table below has what is needed; columns and
tables are numpy arrays, so that a step of thousands of rows costs a few array operations. Tables
are made when they are first asked for. Everything is valid until the next step is read.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from traceparity.invariants import batches
from traceparity.invariants.finding import Finding, Rule
from traceparity.invariants.roles import Names, Role
from traceparity.invariants.state import Carried, Ids, Mask
from traceparity.invariants.tables import (
    Batch,
    Clip,
    Evaluation,
    Gradient,
    Gradients,
    LeftGradients,
    Loss,
    Values,
)
from traceparity.tracefmt.records import Columns, Flag, Header, Kind, Phase, SiteEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceparity.tracefmt.records import NotObserved

_LEFT = ("none", "zero", "kept", "unknown")
_CONTEXT = int(Flag.CONTEXT)
_EVALUATION = int(Flag.EVALUATION)
_RECOMPUTED = int(Flag.RECOMPUTED)


class Source(Protocol):
    """Where rows come from: a `Trace`, or a recording in progress."""

    @property
    def sites(self) -> "Sequence[SiteEntry]":
        """The interned sites."""
        ...

    @property
    def strings(self) -> "Sequence[str]":
        """The interned strings."""
        ...

    @property
    def shapes(self) -> "Sequence[tuple[int, ...]]":
        """The interned shapes."""
        ...

    @property
    def header(self) -> Header:
        """What was known when recording began."""
        ...

    @property
    def not_observed(self) -> "Sequence[NotObserved]":
        """What the recorder could not see, as far as it was told."""
        ...

    def scalar(self, columns: Columns, row: int) -> Any:
        """The plain value in a row."""
        ...


class View(msgspec.Struct, frozen=True):
    """What of a run its recording shows.

    Attributes:
        phases: Phases that were recorded.
        all_sites: Whether no sites were left out (``--include``, ``--exclude``).
        all_steps: Whether no steps were left out (``--steps``, ``--every``).
        watched: Functions whose calls were recorded (``--watch``).
        unseen: Functions that were to be watched and cannot be, each with the reason.
    """

    phases: frozenset[Phase]
    all_sites: bool
    all_steps: bool
    watched: frozenset[str] = frozenset()
    unseen: tuple[tuple[str, str], ...] = ()

    def sees(self, *phases: Phase) -> bool:
        """Whether all of these phases were recorded, with all their sites."""
        return self.all_sites and self.phases.issuperset(phases)


def view_of(source: Source) -> View:
    """What a recording shows, by its settings and by what it could not see."""
    capture = source.header.capture
    watched = frozenset(capture.get("watch") or ())
    notes = ((note.component.removesuffix("()"), note.reason) for note in source.not_observed)
    unseen = tuple((name, reason) for name, reason in notes if name in watched)
    named = capture.get("phases") or [phase.label for phase in Phase]
    return View(
        phases=frozenset(phase for phase in Phase if phase.label in named),
        all_sites=not (capture.get("include") or capture.get("exclude")),
        all_steps=not capture.get("steps") and capture.get("every", 1) in (None, 0, 1),
        watched=watched - {name for name, _ in unseen},
        unseen=unseen,
    )


class StepFacts:
    """One step of one process.

    Attributes:
        rank: Process.
        step: Number of the step.
        tail: Whether it is what is left after the last update.
        gap: Whether the step before it was not recorded, so that comparisons with it mean nothing.
        first: Whether it is the first step of the trace.
        view: What the recording shows.
        source: Where the rows come from.
        columns: The rows as stored.
        names: Numbers for names.
        state: Values carried along, as they are when the step ends.
        values: News of parameters and buffers.
    """

    def __init__(
        self,
        *,
        rank: int,
        step: int,
        tail: bool,
        gap: bool,
        first: bool,
        view: View,
        source: Source,
        columns: Columns,
        names: Names,
        state: Carried,
        role: npt.NDArray[np.uint8],
    ) -> None:
        self.rank = rank
        self.step = step
        self.tail = tail
        self.gap = gap
        self.first = first
        self.view = view
        self.source = source
        self.columns = columns
        self.names = names
        self.state = state
        self.values: Values
        self.rates_before: dict[str, float] = {}
        """Learning rate of each group as the step before left it."""
        self.rates_used: dict[str, float] = {}
        """Learning rate of each group that an update of this step used."""
        self.rates_after: dict[str, float] = {}
        """Learning rate of each group after a scheduler's step, where there was one."""
        self._order: Ids = np.argsort(role, kind="stable")
        self._ends: list[int] = [0, *np.cumsum(np.bincount(role, minlength=len(Role))).tolist()]

    # -- rows ---------------------------------------------------------------------------------

    def rows(self, role: Role) -> Ids:
        """Rows of a role, in execution order, context included."""
        found: Ids = self._order[self._ends[role] : self._ends[role + 1]]
        return found

    def subject(self, rows: Ids) -> Ids:
        """What rows are about: an index into one of the lists of `Names`."""
        found: Ids = self.names.subject[self.columns.site[rows]]
        return found

    def phase(self, rows: Ids) -> npt.NDArray[np.uint8]:
        """The phase of rows."""
        found: npt.NDArray[np.uint8] = self.names.phase[self.columns.site[rows]]
        return found

    def field(self, row: int) -> str:
        """The field of a row's site."""
        return self.source.sites[int(self.columns.site[row])].site.field

    def component(self, row: int) -> str:
        """The component of a row's site."""
        return self.source.sites[int(self.columns.site[row])].site.component

    def location(self, row: int) -> str:
        """Source line that first led to a row's site; empty where unknown."""
        return self.source.sites[int(self.columns.site[row])].location

    def scalar(self, row: int) -> Any:
        """The plain value in a row; None for a tensor."""
        if self.columns.kind[row] == Kind.TENSOR:
            return None
        return self.source.scalar(self.columns, row)

    def number(self, row: int) -> float:
        """The number in a row: a scalar, or a tensor of one element; NaN for anything else."""
        if self.columns.kind[row] == Kind.TENSOR:
            low, high = self.columns.stats[row, :2].tolist()
            return float(low) if low == high else float("nan")
        value = self.scalar(row)
        return float(value) if isinstance(value, int | float) else float("nan")

    def dtype(self, row: int) -> str:
        """The dtype of a tensor without ``torch.``; empty for a plain value."""
        return self.source.strings[int(self.columns.dtype[row])].removeprefix("torch.")

    def shape(self, row: int) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.source.shapes[int(self.columns.shape[row])]

    def evaluation(self, rows: Ids) -> Mask:
        """Which rows are evaluation activity."""
        mask: Mask = (self.columns.flags[rows] & _EVALUATION) != 0
        return mask

    def trained(self, rows: Ids) -> Ids:
        """The rows that are part of the training: no context, recomputation or evaluation.

        What is called with gradients after a backward pass begins another micro-batch. So calls
        that come last in one evaluate, in the middle of an accumulation, and lead to no update.
        """
        rows = rows[(self.columns.flags[rows] & (_CONTEXT | _RECOMPUTED)) == 0]
        late = rows > self._passed[self.columns.microbatch[rows]]
        found: Ids = rows[~late | (self.phase(rows) != Phase.FORWARD)] if late.any() else rows
        return found

    @cached_property
    def _passed(self) -> Ids:
        """``(micro_batches,)`` the last row of each one's backward passes."""
        phases = self.names.phase[self.columns.site]
        rows = np.flatnonzero((phases == Phase.BACKWARD) | (phases == Phase.LOSS))
        last = np.full(self.micro_batches, len(phases), np.int64)
        # Of repeated numbers numpy keeps the last assignment.
        last[self.columns.microbatch[rows]] = rows
        return last

    def finding(
        self,
        rule: Rule,
        phase: Phase,
        component: str,
        field: str,
        expected: Any,
        seen: Any,
        *,
        row: int | None = None,
        others: tuple[str, ...] = (),
        more: int = 0,
    ) -> Finding:
        """A finding in this step; ``row`` tells its micro-batch and source line."""
        return Finding(
            relation=rule.relation,
            invariant=rule.id,
            step=self.step,
            phase=phase,
            component=component,
            field=field,
            expected=expected,
            seen=seen,
            sentence=rule.sentence,
            hint=rule.hint,
            rank=self.rank,
            microbatch=0 if row is None else int(self.columns.microbatch[row]),
            location="" if row is None else self.location(row),
            others=others,
            more=more,
        )

    @cached_property
    def begins(self) -> bool:
        """Whether the run begins here, rather than going on from a checkpoint or a part before."""
        states = self.rows(Role.OPTIMIZER_STATE)
        if not self.first or self.gap or (self.phase(states) == Phase.STATE).any():
            return False
        counters = self.rows(Role.COUNTER)
        told = counters[self.phase(counters) == Phase.STATE].tolist()
        epochs = (self.number(row) for row in told if self.component(row).endswith(".last_epoch"))
        return all(count <= 0 for count in epochs)

    # -- gradients and updates ----------------------------------------------------------------

    @cached_property
    def gradients(self) -> Gradients:
        """Gradients as each backward pass of the step left them."""
        return self._gradients(Phase.BACKWARD)

    @cached_property
    def received(self) -> Gradients:
        """Gradients as the optimizer received them: reduced, unscaled, clipped."""
        return self._gradients(Phase.GRADIENT)

    def _gradients(self, phase: Phase) -> Gradients:
        rows = self.rows(Role.GRADIENT)
        rows = rows[self.phase(rows) == phase]
        columns = self.columns
        stats, bad = columns.stats[rows], columns.nonfinite[rows]
        kind = np.full(len(rows), Gradient.NONZERO, np.uint8)
        norm = stats[:, 2]
        kind[(norm != norm) & (bad == 0)] = Gradient.UNKNOWN
        # A tiny gradient's norm is 0 in single precision; where bounds were taken they decide.
        wide = (np.abs(stats[:, 0]) > 0) | (np.abs(stats[:, 1]) > 0)
        kind[(norm == 0) & ~wide] = Gradient.ZERO
        kind[columns.kind[rows] != Kind.TENSOR] = Gradient.NONE
        return Gradients(
            rows, self.subject(rows), columns.microbatch[rows], kind, columns.digest[rows],
            stats[:, 2], bad,
        )  # fmt: skip

    @cached_property
    def updated(self) -> tuple[str, ...]:
        """Optimizers that updated parameters in this step, in order."""
        rows = self.rows(Role.HYPERPARAMETER)
        rows = rows[self.phase(rows) == Phase.OPTIMIZER]
        numbers = dict.fromkeys(self.subject(rows).tolist())
        groups = (self.names.components[number] for number in numbers)
        return tuple(dict.fromkeys(group.partition(" ")[0] for group in groups))

    @cached_property
    def skipped(self) -> tuple[str, ...]:
        """Optimizers whose update the gradient scaler left out."""
        return tuple(self.component(row) for row in self.rows(Role.SKIPPED).tolist())

    @cached_property
    def update_rows(self) -> Ids:
        """Indices into `values` of what updates left: the parameters that optimizers hold."""
        return np.flatnonzero(self.values.phase == Phase.OPTIMIZER)

    @cached_property
    def left_gradients(self) -> tuple[LeftGradients, ...]:
        """What gradients held when each backward pass began; empty in older traces."""
        found = []
        for row in self.rows(Role.LEFT_GRADIENTS).tolist():
            said = self.scalar(row)
            if isinstance(said, dict):
                batch = int(self.columns.microbatch[row])
                counts = {key: int(said.get(key, 0)) for key in _LEFT}
                first = str(said.get("first_kept", ""))
                found.append(LeftGradients(row, batch, **counts, first_kept=first))
        return tuple(found)

    @cached_property
    def zero_grads(self) -> tuple[str, ...]:
        """Who set gradients to zero between the first forward pass and the update of the step."""
        return tuple(self.field(row) for row in self.rows(Role.ZERO_GRAD).tolist())

    @cached_property
    def losses(self) -> tuple[Loss, ...]:
        """Roots of backward passes."""
        rows, columns = self.rows(Role.LOSS).tolist(), self.columns
        return tuple(
            Loss(row, int(columns.microbatch[row]), self.number(row), bool(columns.nonfinite[row]))
            for row in rows
        )

    @cached_property
    def clips(self) -> tuple[Clip, ...]:
        """Calls that clip gradients."""
        found, total = [], float("nan")
        for row in self.rows(Role.CLIP).tolist():
            name = self.field(row)
            if name == "total_norm":
                total = self.number(row)
                continue
            found.append(Clip(row, self.component(row), total, self.number(row)))
            total = float("nan")
        return tuple(found)

    # -- schedulers, data, randomness ---------------------------------------------------------

    @cached_property
    def scheduler_steps(self) -> dict[str, int]:
        """How often each scheduler stepped in this step."""
        counts: dict[str, int] = {}
        rows = self.rows(Role.COUNTER)
        for row in rows[self.phase(rows) == Phase.SCHEDULER].tolist():
            name, _, counter = self.component(row).rpartition(".")
            if counter == "last_epoch":
                counts[name] = counts.get(name, 0) + 1
        return counts

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """Batches that loaders gave, in order."""
        return tuple(batches.batches_of(self))

    @cached_property
    def pass_ends(self) -> tuple[tuple[str, int], ...]:
        """``(loader, epoch)`` of the passes over loaders that ended in this step."""
        ends = []
        for row in self.rows(Role.PASS_END).tolist():
            said = self.scalar(row)
            if isinstance(said, dict):
                ends.append((self.component(row), int(said.get("epoch", 0))))
        return tuple(ends)

    @cached_property
    def random(self) -> tuple[tuple[Phase, str, str, bool], ...]:
        """``(phase, generator, digest, evaluation)`` of each look at a random generator."""
        rows = self.rows(Role.RNG)
        phases, evaluation = self.phase(rows).tolist(), self.evaluation(rows).tolist()
        return tuple(
            (Phase(phase), self.component(row), str(self.scalar(row)), seen)
            for row, phase, seen in zip(rows.tolist(), phases, evaluation, strict=True)
        )

    @cached_property
    def training(self) -> npt.NDArray[np.int8]:
        """``(modules,)`` modes in which the step trained: 1 train, 0 eval, -1 unknown.

        Those that it began with, but for what was switched before its first training call.
        """
        rows = self.rows(Role.TRAINING)
        rows = rows[(self.phase(rows) == Phase.FORWARD) & ~self.evaluation(rows)]
        if len(rows):
            # What is switched later is for calls without gradients, between two passes.
            called = self.trained(self.rows(Role.OUTPUT))
            rows = rows[rows < called[0]] if len(called) else rows
        if not len(rows):
            return self.state.training
        found = self.state.training.copy()
        for row, module in zip(rows.tolist(), self.subject(rows).tolist(), strict=True):
            found[module] = bool(self.scalar(row))
        return found

    @cached_property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """Calls of root modules as evaluation activity; empty in older traces."""
        flags, draws = self.rows(Role.TRAINING), self.rows(Role.DRAWS).tolist()
        told = flags[(self.phase(flags) == Phase.FORWARD) & self.evaluation(flags)].tolist()
        found = []
        for number, row in enumerate(told):
            drew = self.scalar(draws[number]) if number < len(draws) else None
            known = drew if isinstance(drew, bool) else None
            found.append(Evaluation(row, self.component(row), bool(self.scalar(row)), known))
        return tuple(found)

    @cached_property
    def micro_batches(self) -> int:
        """How many forward/backward passes the step has."""
        return int(self.columns.microbatch.max(initial=0)) + 1
