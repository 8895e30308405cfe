"""Inference: from the traces of good runs to the invariants that hold in all of them."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from traceparity.invariants.errors import InvariantError
from traceparity.invariants.evidence import Evidence
from traceparity.invariants.families import Observers
from traceparity.invariants.invariant import Invariant
from traceparity.invariants.learning import infer
from traceparity.invariants.reading import read_groups


def learn_from(
    references: Sequence[Path], families: Sequence[str], *, most_examples: int | None
) -> tuple[list[Invariant], Evidence]:
    """Learn from good runs: each a trace, or a folder with one for each process.

    Args:
        references: The runs.
        families: Which families to learn.
        most_examples: Kinds of examples of one question that are counted; None for all.

    Raises:
        TraceError: A trace cannot be used.
        InvariantError: Nothing can be learned from them.
    """
    from traceparity.tracefmt.reader import open_run

    evidence = Evidence(most_examples)
    for path in references:
        with contextlib.ExitStack() as stack:
            traces = open_run(path)
            for trace in traces.values():
                stack.enter_context(trace)
            evidence.begin("+".join(trace.content_digest[:12] for trace in traces.values()))
            observers = Observers(families)
            for group in read_groups(traces):
                for facts in group:
                    evidence.take(facts, observers.step(facts))
                if len(group) > 1:
                    evidence.take(group[0], observers.ranks(group))
            for facts, event in observers.end():
                evidence.take(facts, [event])
    found = infer(evidence)
    if not found:
        names = ", ".join(map(str, references))
        raise InvariantError(f"{names}: nothing was learned; {_why_nothing(families, evidence)}")
    return found, evidence


def _why_nothing(families: Sequence[str], evidence: Evidence) -> str:
    if not evidence.updates:
        return "the traces hold no training steps"
    if tuple(families) == ("function",) and not evidence.watched:
        return "the traces watch no functions; record with tp-record --watch package.function"
    return f"nothing is always so in what they show of {', '.join(families)}"
