"""Causes: findings put together, the earliest first, with what may follow from it counted."""

from collections.abc import Sequence

import msgspec

from traceparity.invariants.finding import FAMILIES, Finding

_FOLLOW = {
    "data": ("data", "phase", "hyperparameter", "bounds", "function"),
    "hyperparameter": ("hyperparameter", "update", "bounds"),
    "mode": ("mode", "randomness", "write", "bounds", "shape"),
    "shape": ("shape", "bounds", "data"),
    "update": ("update", "gradient", "write", "phase", "equality", "bounds", "function"),
    "gradient": ("gradient", "update", "write", "phase", "equality", "bounds", "function"),
    "phase": (
        "phase",
        "gradient",
        "update",
        "hyperparameter",
        "write",
        "equality",
        "bounds",
        "function",
    ),
    "write": ("write", "update", "equality", "bounds"),
    "equality": ("equality", "gradient", "write", "bounds"),
    "bounds": ("bounds", "update", "gradient", "write", "equality"),
    "randomness": ("randomness", "equality", "bounds"),
    "collective": ("collective", "equality", "gradient", "phase", "bounds"),
    "function": tuple(FAMILIES.values()),
}
"""What may follow from a finding of a family, in its step or later: the parts of a step that use
what the part before left."""

_LAST = {"phase": 1, "equality": 2}
"""Families whose findings of a step come after those of others: what lacks in the order follows
from nearly everything, and replicas part for any reason that shows on one of them too."""


_TIE = "shared_with"
"""Field of tied parameters: a tie that was lost is seen before all that follows from it."""


class Cause(msgspec.Struct, frozen=True):
    """A finding, and those that may follow from it.

    Attributes:
        first: The earliest finding.
        follow: Findings that may follow from it: the same one again, and others.
        last_step: Step of the last one.
    """

    first: Finding
    follow: tuple[Finding, ...]
    last_step: int


def causes_of(findings: Sequence[Finding]) -> list[Cause]:
    """Group findings by cause, in the order of the run."""
    groups: list[list[Finding]] = []
    for finding in sorted(findings, key=_order):
        for group in groups:
            if finding.relation in _FOLLOW.get(group[0].relation, ()):
                group.append(finding)
                break
        else:
            groups.append([finding])
    return [Cause(group[0], tuple(group[1:]), max(each.step for each in group)) for group in groups]


def causes_beside(
    findings: Sequence[Finding], waived: Sequence[Finding]
) -> tuple[list[Cause], dict[str, int]]:
    """Group findings by cause, without those causes that are accepted and what follows from them.

    Args:
        findings: What breaks an invariant that is not accepted.
        waived: The first finding of each accepted invariant that is broken.

    Returns:
        The causes, and by id of the invariant how many findings follow from what is accepted.
    """
    accepted = {each.invariant for each in waived}
    kept: list[Cause] = []
    covered: dict[str, int] = {}
    for cause in causes_of([*waived, *findings]):
        follow = tuple(each for each in cause.follow if each.invariant not in accepted)
        if cause.first.invariant not in accepted:
            last = max(each.step for each in (cause.first, *follow))
            kept.append(Cause(cause.first, follow, last))
            continue
        for each in follow:
            covered[each.invariant] = covered.get(each.invariant, 0) + 1
    return kept, covered


def _order(finding: Finding) -> tuple[int, int, int, int, int, str]:
    return (
        finding.step,
        0 if finding.field == _TIE else _LAST.get(finding.relation, 0),
        finding.microbatch,
        int(finding.phase),
        finding.rank,
        finding.invariant,
    )
