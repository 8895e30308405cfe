"""Which built-in laws decide, and which only advise."""

from collections.abc import Iterable
from dataclasses import dataclass

from traceparity.invariants.errors import InvariantError
from traceparity.invariants.laws.bounds import FINITE
from traceparity.invariants.laws.law import Law
from traceparity.invariants.laws.pack import LAWS
from traceparity.invariants.laws.replicas import REPLICAS_EQUAL, ReplicasEqual


@dataclass(frozen=True, slots=True)
class LawChoice:
    """What is asked of the laws.

    Attributes:
        declared: Laws that decide.
        named: Ids of those that were declared one by one: where one of them has nothing to judge,
            nobody can say that it holds.
        advised: Laws that explain beside the verdict.
    """

    declared: tuple[Law, ...] = ()
    named: frozenset[str] = frozenset()
    advised: tuple[Law, ...] = ()


def choose(
    *,
    builtin: bool = False,
    replicas: bool = False,
    laws: Iterable[str] = (),
    without: Iterable[str] = (),
    advice: bool = True,
) -> LawChoice:
    """Choose laws for a check, which judges by itself what is finite.

    Args:
        builtin: Whether all of them decide.
        replicas: Whether that of replicas decides, at the first step where they part.
        laws: Ids of further laws that decide.
        without: Ids of laws that are not applied, as where a program departs from one by intent.
        advice: Whether the others advise.

    Raises:
        InvariantError: There is no such law.
    """
    named, left_out = frozenset(laws), frozenset(without)
    known = [law.id for law in LAWS if law.rule is not FINITE]
    for each in (*named, *left_out):
        if each not in known:
            raise InvariantError(f"no law {each!r}; there are {', '.join(known)}")
    if replicas:
        named |= {REPLICAS_EQUAL.id}
    applied = [_strict(law, named) for law in LAWS if law.id in known and law.id not in left_out]
    declared = tuple(law for law in applied if builtin or law.id in named)
    others = tuple(law for law in applied if law not in declared)
    return LawChoice(declared, named - left_out, others if advice else ())


def _strict(law: Law, named: frozenset[str]) -> Law:
    """A law as it is declared: who asks for equal replicas means after each step."""
    if law.rule is REPLICAS_EQUAL and law.id in named:
        return Law(law.rule, judge_ranks=_replicas_after_each_step)
    return law


def _replicas_after_each_step() -> ReplicasEqual:
    return ReplicasEqual(may_meet_again=False)
