"""The policy: the declared relation of two traces, never inferred from their differences."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from traceparity.tracefmt.globs import glob_matches

PHASES = (
    "state",
    "data",
    "forward",
    "loss",
    "backward",
    "gradient",
    "optimizer",
    "scheduler",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """How the values of some sites are compared; without any limit, exactly.

    Attributes:
        site: Glob over ``phase:component:field``.
        rtol: Relative part of the elementwise limit ``atol + rtol * |target|``.
        atol: Absolute part of that limit.
        rel_l2: Limit of ``|reference - target| / |reference|`` over the whole tensor.
        ulp: Limit in units in the last place, elementwise.
        symmetric: `rtol` and `rel_l2` are relative to the larger of both sides, so that it does not
            matter which run is the reference.
        noise: As `rel_l2`, in multiples of the noise that was measured at the site and is kept in
            the reference.
        equal_nan: Whether a NaN equals a NaN.
        ignore: The sites are no part of the relation.
    """

    site: str = "*"
    rtol: float | None = None
    atol: float | None = None
    rel_l2: float | None = None
    ulp: int | None = None
    symmetric: bool = False
    noise: float | None = None
    equal_nan: bool = False
    ignore: bool = False

    @property
    def exact(self) -> bool:
        """Whether only bit-equal values satisfy the rule."""
        limited = self.elementwise or self.rel_l2 is not None or self.noise is not None
        return not self.ignore and not limited

    @property
    def elementwise(self) -> bool:
        """Whether the rule needs the elements of a tensor."""
        return not (self.rtol is None and self.atol is None and self.ulp is None)


EXACT = Rule()
NOT_MEASURED = (
    "the policy allows a multiple of the noise, and none was measured for the reference; tp-verify"
    " does so with repeat_reference = N"
)
"""Why nothing can be judged by a rule with `Rule.noise`."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which samples must be seen; the fields are those of the policy file."""

    policy: str
    id: str = "sampler"
    expected: str | tuple[int | str, ...] | None = None
    scope: str = "epoch"
    count: str = "trained"
    padding: int | None = None


@dataclass(frozen=True, slots=True)
class Align:
    """What lines up with what; the fields are those of the policy file.

    Attributes:
        kind: ``start``, ``resume`` or ``accumulation``.
        step_offset: Reference step of the target's step 0; None finds it.
        microbatches: Micro-batches an update has in the reference and in the target.
        ranks: ``one_to_one``, ``replicated`` or ``sharded``.
        phases: The phases that are compared.
        order: ``exact``, or ``free`` where the order of samples is no part of the relation.
        unmatched: ``fail``, or ``allow`` to list sites of one side without judging them.
        evaluation: ``context``, or ``compare`` to judge evaluation activity too.
        device: ``context``, or ``compare`` to judge where tensors are.
        rng: ``context``, or ``compare`` to judge the states of random generators.
        rename: Pairs of reference name and target name.
        loss: How the losses of micro-batches come to that of the update: ``sum``, ``mean``,
            ``weighted``, or ``skip`` where they are no part of the relation.
        loss_weight: What a micro-batch weighs: ``samples``, or a recorded batch field whose
            elements add up to it (``batch[mask]``) or are counted (``batch[1] != -100``).
    """

    kind: str = "start"
    step_offset: int | None = None
    microbatches: tuple[int, int] | None = None
    ranks: str = "one_to_one"
    phases: tuple[str, ...] = PHASES
    order: str = "exact"
    unmatched: str = "fail"
    evaluation: str = "context"
    device: str = "context"
    rng: str = "context"
    rename: tuple[tuple[str, str], ...] = ()
    loss: str = "sum"
    loss_weight: str = "samples"


@dataclass(frozen=True, slots=True)
class Policy:
    """A declared relation of two traces, and what one trace must satisfy.

    Attributes:
        align: What lines up with what.
        rules: How values are compared.
        coverage: Which samples must be seen; None where that is not judged.
        laws: Built-in laws, or ``all``, and what they are: ``verdict``, ``advice`` or ``off``.
    """

    align: Align = field(default_factory=Align)
    rules: tuple[Rule, ...] = ()
    coverage: Coverage | None = None
    laws: tuple[tuple[str, str], ...] = ()

    @property
    def needs_noise(self) -> bool:
        """Whether some rule is a multiple of the noise that was measured for the reference."""
        return any(rule.noise is not None for rule in self.rules)

    def rule_for(self, names: Iterable[str]) -> Rule:
        """The rule of a site under any of its names: the last one that matches, else exact."""
        names = tuple(names)
        for rule in reversed(self.rules):
            if any(glob_matches(rule.site, name) for name in names):
                return rule
        return EXACT

    def as_dict(self) -> dict[str, Any]:
        """The policy with the keys and values of a policy file."""
        align = self.align
        tables: dict[str, Any] = {
            "align": {
                "kind": align.kind,
                "ranks": align.ranks,
                "phases": list(align.phases),
                "order": align.order,
                "unmatched": align.unmatched,
                "evaluation": align.evaluation,
                "device": align.device,
                "rng": align.rng,
                "rename": dict(align.rename),
            },
            "compare": [_rule_as_dict(rule) for rule in self.rules],
        }
        if align.kind == "resume":
            tables["align"]["step_offset"] = (
                "auto" if align.step_offset is None else align.step_offset
            )
        if align.kind == "accumulation":
            tables["align"] |= _accumulation_as_dict(align)
        if self.coverage:
            tables["coverage"] = _coverage_as_dict(self.coverage)
        if self.laws:
            tables["laws"] = dict(self.laws)
        return tables


def _accumulation_as_dict(align: Align) -> dict[str, Any]:
    values: dict[str, Any] = {"loss": align.loss}
    if align.loss == "weighted":
        values["loss_weight"] = align.loss_weight
    if align.microbatches:
        sides = ("reference", "target")
        values["microbatches"] = dict(zip(sides, align.microbatches, strict=True))
    return values


def _rule_as_dict(rule: Rule) -> dict[str, Any]:
    values: dict[str, Any] = {"site": rule.site}
    for name in ("rtol", "atol", "rel_l2", "ulp"):
        if getattr(rule, name) is not None:
            values[name] = getattr(rule, name)
    if rule.noise is not None:
        values["tolerance"] = f"noise * {rule.noise:g}"
    for name in ("symmetric", "equal_nan", "ignore"):
        if getattr(rule, name):
            values[name] = True
    return values


def _coverage_as_dict(coverage: Coverage) -> dict[str, Any]:
    names = ("policy", "id", "expected", "scope", "count", "padding")
    values = {name: getattr(coverage, name) for name in names}
    if isinstance(coverage.expected, tuple):
        values["expected"] = list(coverage.expected)
    return {name: value for name, value in values.items() if value is not None}
