"""How alike things are around a divergence, in the eyes of the policy that judges them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from traceparity.differ.compare import Relation, compare
from traceparity.differ.observation import Observation
from traceparity.differ.result import Evidence
from traceparity.differ.step_pair import StepPair

_SHOWN = 3


@dataclass(slots=True)
class Likeness:
    """The names of things, by how their two values compare.

    Attributes:
        same: Bit-equal.
        close: Not bit-equal, and equal by the rule of their site.
        apart: Neither, or on one side only.
        unknown: Not bit-equal, and what was recorded cannot tell more.
    """

    same: list[str] = field(default_factory=list)
    close: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def take(
        self,
        pair: StepPair,
        site: int,
        name: str,
        left: Observation | None,
        right: Observation | None,
    ) -> None:
        """Compare two values of a site by its rule; where it is ignored, by their bits."""
        if left is None or right is None:
            self.apart.append(name)
            return
        comparable = pair.comparable(left, right)
        if comparable and (left.kind, left.digest) == (right.kind, right.digest):
            self.same.append(name)
            return
        rule = pair.sites.rule(site)
        verdict = compare(rule, left, right, same_digest_kind=comparable)
        if rule.ignore or verdict.relation is Relation.DIFFERENT:
            self.apart.append(name)
        else:
            (self.close if verdict else self.unknown).append(name)

    @property
    def different(self) -> bool:
        """Whether anything differs by more than the policy allows."""
        return bool(self.apart)

    def evidence(self, what: str, noun: str) -> Iterator[Evidence]:
        """One sentence on all of them; none where nothing was there to compare."""
        count = len(self.same) + len(self.close)
        if self.apart:
            yield Evidence(what, False, f"{noun} differ: {_listed(self.apart)}")
        elif self.unknown:
            detail = (
                f"the bits of {noun} differ, and what was recorded does not tell whether within "
                f"the tolerance: {_listed(self.unknown)}"
            )
            yield Evidence(what, None, detail)
        elif self.close:
            detail = (
                f"{noun} equal within the tolerance ({count} compared, the bits of "
                f"{len(self.close)} differ)"
            )
            yield Evidence(what, True, detail)
        elif self.same:
            yield Evidence(what, True, f"{noun} equal ({count} compared)")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
