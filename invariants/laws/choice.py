"""Which built-in laws decide, and which only advise."""

from collections.abc import Iterable, Mapping
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
    policy: Mapping[str, str] | None = None,
) -> LawChoice:
    """Choose laws for a check, which judges by itself what is finite.

    Args:
        builtin: Whether all of them decide.
        replicas: Whether that of replicas decides, at the first step where they part.
        laws: Ids of further laws that decide.
        without: Ids of laws that are not applied, as where a program departs from one by intent.
        advice: Whether those that do not decide may advise.
        policy: What a policy says of laws, or of ``all`` the others: ``verdict``, ``advice`` or
            ``off``; the arguments before it are stronger.

    Raises:
        InvariantError: There is no such law, or it is both declared and left out.
    """
    said = dict(policy or {})
    others = said.pop("all", "advice")
    otherwise = "verdict" if builtin else others
    laws, without = tuple(laws), tuple(without)
    for each in laws:
        if each in without:
            raise InvariantError(f"law {each!r}: it cannot decide and be left out at once")
    words = said | dict.fromkeys(laws, "verdict") | dict.fromkeys(without, "off")
    known = [law.id for law in LAWS if law.rule is not FINITE]
    for each in words:
        if each not in known:
            raise InvariantError(f"no law {each!r}; there are {', '.join(known)}")
    if replicas and REPLICAS_EQUAL.id not in without:
        words[REPLICAS_EQUAL.id] = "verdict"
    named = frozenset(each for each, word in words.items() if word == "verdict")
    if builtin:
        words = {each: word for each, word in words.items() if word != "advice"}
    applied = [
        (_strict(law, named), words.get(law.id, otherwise)) for law in LAWS if law.id in known
    ]
    declared = tuple(law for law, word in applied if word == "verdict")
    advised = tuple(law for law, word in applied if word == "advice")
    return LawChoice(declared, named, advised if advice else ())


def _strict(law: Law, named: frozenset[str]) -> Law:
    """A law as it is declared: who asks for equal replicas means after each step."""
    if law.rule is REPLICAS_EQUAL and law.id in named:
        return Law(law.rule, judge_ranks=_replicas_after_each_step)
    return law


def _replicas_after_each_step() -> ReplicasEqual:
    return ReplicasEqual(may_meet_again=False)
