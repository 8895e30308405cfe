"""The verdict of declared laws."""

from collections.abc import Set as AbstractSet

from traceparity.differ.result import Outcome
from traceparity.invariants.laws.result import LawsResult


def law_verdict(result: LawsResult, named: AbstractSet[str]) -> tuple[Outcome, str]:
    """The outcome, and what it rests on.

    Args:
        result: What the laws found.
        named: Ids of laws that were declared one by one, and so have to be judged.
    """
    if result.causes:
        return Outcome.FAIL, _broken(result)
    missing = [each for each in result.not_judged if each.unseen or each.law.id in named]
    if len(result.not_judged) == len(result.laws):
        missing = list(result.not_judged)
    if missing:
        first = missing[0]
        more = f" (and {len(missing) - 1} more laws)" if len(missing) > 1 else ""
        return Outcome.ABSTAIN, f"the law {first.law.id} cannot be judged{more}: {first.reason}"
    count = len(result.laws) - len(result.not_judged)
    return Outcome.PASS, f"{count} built-in laws hold" if count > 1 else (
        f"the law {result.laws[0].id} holds"
    )


def _broken(result: LawsResult) -> str:
    first = result.causes[0].first
    rank = f" of rank {first.rank}" if first.rank else ""
    others = len(result.causes) - 1
    more = f", and {others} more {'cause' if others == 1 else 'causes'}" if others else ""
    return f"step {first.step}{rank} breaks a law: {first.sentence}{more}"
