"""What a check by built-in laws comes to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceparity.invariants.causes import Cause, causes_of
from traceparity.invariants.facts import StepFacts
from traceparity.invariants.finding import Finding
from traceparity.invariants.laws.judge import LawJudge, NotJudged
from traceparity.invariants.laws.law import Law
from traceparity.invariants.reading import read_groups
from traceparity.tracefmt.errors import TraceparityError

if TYPE_CHECKING:
    from traceparity.tracefmt.reader import Trace


@dataclass(frozen=True, slots=True)
class LawsResult:
    """All that a check by laws found.

    Attributes:
        laws: The laws.
        findings: In the order of the run.
        causes: The findings, grouped.
        not_judged: Laws that had nothing to judge.
        fault: An error of ours that kept them from judging; empty where there was none.
    """

    laws: tuple[Law, ...]
    findings: tuple[Finding, ...]
    causes: tuple[Cause, ...]
    not_judged: tuple[NotJudged, ...]
    fault: str = ""


class JudgedByLaws:
    """A run that is judged by laws while its steps go by."""

    def __init__(self, laws: Sequence[Law]) -> None:
        self._laws = tuple(laws)
        self._judge = LawJudge(laws)
        self._found: list[Finding] = []

    def begin_segment(self) -> None:
        """What follows is read from other traces, in which the run went on."""
        self._found += self._judge.end()
        self._judge.begin_segment()

    def group(self, group: Sequence[StepFacts]) -> None:
        """The next step, of all processes that have it, by rank."""
        self._found += self._judge.step(group)

    def result(self) -> LawsResult:
        """What it came to; there are no more steps."""
        found = sorted([*self._found, *self._judge.end()], key=lambda each: each.order)
        return LawsResult(
            self._laws, tuple(found), tuple(causes_of(found)), tuple(self._judge.not_judged())
        )


class Advice:
    """A run that laws advise on; advice decides nothing, not even by failing."""

    def __init__(self, laws: Sequence[Law]) -> None:
        self._laws = tuple(laws)
        self._judged = JudgedByLaws(laws)
        self._fault = ""

    def begin_segment(self) -> None:
        """What follows is read from other traces, in which the run went on."""
        self._guarded(self._judged.begin_segment)

    def group(self, group: Sequence[StepFacts]) -> None:
        """The next step, of all processes that have it, by rank."""
        self._guarded(lambda: self._judged.group(group))

    def result(self) -> LawsResult:
        """What it came to; there are no more steps."""
        found: list[LawsResult] = []
        self._guarded(lambda: found.append(self._judged.result()))
        return found[0] if found else LawsResult(self._laws, (), (), (), self._fault)

    def _guarded(self, judge: Callable[[], None]) -> None:
        if self._fault:
            return
        try:
            judge()
        except TraceparityError:
            raise
        except Exception as error:  # noqa: BLE001 - the verdict must not depend on it
            self._fault = f"internal error, please report it: {error!r}"


def judge_by_laws(segments: Sequence[Mapping[int, "Trace"]], laws: Sequence[Law]) -> LawsResult:
    """Judge a run, in one segment or several.

    Raises:
        TraceError: A trace cannot be used.
    """
    judged = JudgedByLaws(laws)
    for number, traces in enumerate(segments):
        if number:
            judged.begin_segment()
        for group in read_groups(traces):
            judged.group(group)
    return judged.result()
