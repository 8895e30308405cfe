"""What the built-in laws say of a trace."""

import contextlib
from pathlib import Path

from traceparity.invariants.laws.pack import LAWS
from traceparity.invariants.laws.result import LawsResult, judge_by_laws
from traceparity.tracefmt.reader import open_run


def judged(path: Path) -> LawsResult:
    """All built-in laws on a run that was recorded without a fault."""
    with contextlib.ExitStack() as stack:
        traces = open_run(path)
        for trace in traces.values():
            stack.enter_context(trace)
            assert trace.complete, trace.incomplete_reason
        return judge_by_laws([traces], LAWS)


def told(result: LawsResult) -> list[str]:
    """The causes, one line each."""
    return [
        f"step {first.step} of rank {first.rank}, {first.phase.label}:{first.component}"
        f":{first.field}: {first.invariant}: {first.seen}"
        for first in (cause.first for cause in result.causes)
    ]
