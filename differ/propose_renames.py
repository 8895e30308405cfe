"""A proposal for the table of renamed modules; the user accepts it by copying it."""

import shlex
from collections.abc import Sequence

from traceparity.differ.name_pairs import Listing, NamePairs, listing_of, pair_names
from traceparity.differ.policy_text import quoted
from traceparity.differ.rename import Renames
from traceparity.differ.rename_table import rename_table
from traceparity.tracefmt.location import Location

_SHOWN = 8


def propose_renames(reference: Location, target: Location) -> str:
    """The proposal as a part of a policy file.

    Raises:
        TraceError: A trace cannot be used.
        AlignmentError: A trace does not list what its run starts with.
    """
    from traceparity.tracefmt.reader import open_run

    runs = open_run(reference), open_run(target)
    try:
        left, right = (
            listing_of(next(iter(run.values())), side)
            for run, side in zip(runs, ("reference", "target"), strict=True)
        )
    finally:
        for run in runs:
            for trace in run.values():
                trace.close()
    found = pair_names(left, right)
    table = rename_table(found.pairs, (left.outputs, right.outputs))
    command = shlex.join(["tp-diff", "--propose-renames", str(reference), str(target)])
    lines = [f"# Proposed by {command}", "# Read it over, and put it into a policy file."]
    lines += [*_facts(found), *_one_sided(left, right, table)]
    if table:
        lines += ["", "[align.rename]", *(f"{quoted(old)} = {quoted(new)}" for old, new in table)]
    else:
        lines.append("# There is nothing to rename.")
    return "\n".join(lines) + "\n"


def _facts(found: NamePairs) -> list[str]:
    same = len(found.pairs) - found.by_value - found.by_order
    total = len(found.pairs) + len(found.reference_only)
    lines = [
        f"# Of {total} parameters and buffers of the reference",
        f"#   {found.by_value} are told by their value,",
        f"#   {found.by_order} by the order of calls among those of one value,",
        f"#   {same} have the same name.",
    ]
    for side, names in (("reference", found.reference_only), ("target", found.target_only)):
        if names:
            lines.append(f"# Without a counterpart in the {side}: {_listed(names)}")
    return lines


def _one_sided(left: Listing, right: Listing, table: Sequence[tuple[str, str]]) -> list[str]:
    """Modules that the table gives no counterpart, and what that needs."""
    renamed = {name: Renames(table).path(name) for name in left.outputs}
    ours = [name for name, new in renamed.items() if new not in right.outputs]
    theirs = right.outputs.keys() - renamed.values()
    lines = [
        f"# Modules of the {side} alone: {_listed(sorted(names))}"
        for side, names in (("reference", ours), ("target", theirs))
        if names
    ]
    return [*lines, '# unmatched = "allow" under [align] accepts them.'] if lines else []


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
