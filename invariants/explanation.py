"""Explanations: what an invariant says and rests on, for people."""

from collections.abc import Sequence

from traceparity.invariants.errors import InvariantError
from traceparity.invariants.families import templates
from traceparity.invariants.invariant import Invariant


def explained(found: Sequence[Invariant], name: str) -> str:
    """What the invariant with an id says and rests on, in a few lines.

    Raises:
        InvariantError: There is none with this id.
    """
    for each in found:
        if each.id == name:
            return "\n".join(_lines(each))
    raise InvariantError(f"there is no invariant {name}; the ids are the first entries of the file")


def _lines(invariant: Invariant) -> list[str]:
    template = templates([invariant.relation])[invariant.template]
    witness = invariant.witness
    lines = [
        f"{invariant.id}  {invariant.text}",
        f"  relation     {invariant.relation} ({invariant.template})",
        f"  where        {_where(invariant)}",
        f"  phase        {template.phase.label}",
        f"  supported    by {invariant.positive:,} examples",
        f"  left out     {invariant.negative:,} examples with another outcome, by where it holds",
        f"  references   {', '.join(invariant.references) or 'unknown'}",
        f"  first seen   reference {witness.reference}, step {witness.step}"
        + (f", {witness.component}" if witness.component else "")
        + (f", {witness.location}" if witness.location else ""),
        f"  look at      {template.hint}",
    ]
    if invariant.accepted:
        lines.append(f"  accepted     {invariant.accepted}")
    return lines


def _where(invariant: Invariant) -> str:
    if not invariant.precondition:
        return "everywhere"
    return "; ".join(
        f"{name} is {' or '.join(map(str, values))}"
        for name, values in invariant.precondition.items()
    )
