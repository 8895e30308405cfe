"""A run that is checked while it trains: by invariants, or by the built-in laws."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceparity.differ.policy import Policy
from traceparity.invariants.causes import causes_beside
from traceparity.invariants.facts import StepFacts
from traceparity.invariants.families import templates
from traceparity.invariants.file import read_invariants
from traceparity.invariants.finding import Finding
from traceparity.invariants.judge import Judge
from traceparity.invariants.laws.choice import LawChoice, choose
from traceparity.invariants.laws.judge import LawJudge
from traceparity.invariants.reading import FactsReader
from traceparity.tracefmt.growing import GrowingTrace
from traceparity.tracefmt.records import Phase
from traceparity.verify.run_verdict import RunVerdict, judge_run

if TYPE_CHECKING:
    from traceparity.invariants.invariant import Invariant

BUILTIN = "builtin"
"""Stands for the built-in laws where a file of invariants could be named."""


class LiveCheck:
    """What a run is checked by, step after step as it comes, and as a whole at the end."""

    def __init__(self, by: str) -> None:
        """Read what it is checked by: a file that `tp-infer` wrote, or `BUILTIN`.

        Raises:
            InvariantError: The file cannot be used.
        """
        self._file = None if by == BUILTIN else Path(by)
        self._invariants: Sequence[Invariant] = ()
        self._laws = LawChoice()
        if self._file is None:
            self._laws = choose(builtin=True, advice=False)
        else:
            self._invariants = read_invariants(self._file)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that must be recorded for all of it to be judged, the state among them."""
        known = templates({each.relation for each in self._invariants})
        needs = [phase for each in self._invariants for phase in known[each.template].needs]
        needs += [phase for law in self._laws.declared for phase in law.needs]
        return tuple(phase for phase in Phase if phase in (Phase.STATE, *needs))

    @property
    def watched(self) -> tuple[str, ...]:
        """The functions whose calls must be recorded for all of it to be judged."""
        of_calls = [each for each in self._invariants if each.relation == "function"]
        named = [name for each in of_calls for name in each.precondition.get("function", ())]
        return tuple(dict.fromkeys(map(str, named)))

    def judge_of(self, rank: int, trace: GrowingTrace) -> "_RankCheck":
        """The judge of one process; what compares processes is judged at the end."""
        learned = Judge(self._invariants) if self._file is not None else None
        laws = LawJudge(self._laws.declared) if self._laws.declared else None
        return _RankCheck(rank, trace, learned, laws)

    def conclude(self, out: Path) -> RunVerdict:
        """Check all of the run, which has ended.

        Raises:
            TraceError: The run left no trace, or one that cannot be used.
        """
        return judge_run(
            [out], Policy(), invariants=self._invariants, file=self._file, laws=self._laws
        )


class _RankCheck:
    def __init__(
        self, rank: int, trace: GrowingTrace, learned: Judge | None, laws: LawJudge | None
    ) -> None:
        self._rank = rank
        self._reader = FactsReader(trace, rank)
        self._learned = learned
        self._laws = laws

    def judge(self, trace: GrowingTrace, number: int, *, finished: bool) -> str | None:
        """What a finished step breaks; see `Judge`."""
        if not finished:
            # A scheduler may step yet, and the facts of a step are read once.
            return None
        tail = any(entry.tail for entry in trace.steps if entry.number == number)
        facts = self._reader.step(number, trace.columns(number), tail=tail)
        found = [*self._findings(facts)]
        waived = self._learned.waived.values() if self._learned is not None else ()
        causes, _ = causes_beside(found, [*waived])
        return _said(causes[0].first) if causes else None

    def _findings(self, facts: StepFacts) -> Iterable[Finding]:
        if self._learned is not None:
            yield from self._learned.step(facts)
        if self._laws is not None:
            yield from self._laws.step([facts])


def _said(found: Finding) -> str:
    rank = f" of rank {found.rank}" if found.rank else ""
    name = found.component or "(root)"
    more = len(found.others) + found.more
    others = f" and {more} more" if more else ""
    where = f" ({found.location})" if found.location else ""
    return (
        f"step {found.step}{rank}, {found.phase.label}, {name}{others}: {found.sentence}; "
        f"seen: {found.seen}{where}"
    )
