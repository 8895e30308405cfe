"""Starting a case file: one recorded run, and what it tells; what it does not tell is a blank."""

import math
import os
import shlex
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from traceparity.differ.policy_text import quoted
from traceparity.tracefmt.reader import Trace, open_run
from traceparity.tracefmt.records import Phase
from traceparity.verify.case import DEFAULT_TIMEOUT
from traceparity.verify.case_file import BLANK
from traceparity.verify.errors import CaseFileError
from traceparity.verify.execution import Execution, run_recorded
from traceparity.verify.shell_words import only_for_a_shell

_MARGIN = 10
"""How much longer than the first run a command may take."""
_LEAST_TIMEOUT = 120


@dataclass(frozen=True, slots=True)
class Facts:
    """What a recorded run tells.

    Attributes:
        updates: Steps of the optimizer.
        micro_batches: Forward and backward passes of an update.
        processes: Training processes.
        samples: Size of the dataset; None where that is unknown.
        named: Whether samples have IDs.
        seconds: How long the run took.
    """

    updates: int
    micro_batches: int
    processes: int
    samples: int | None
    named: bool
    seconds: float


def start_file(
    kind: str,
    command: Sequence[str],
    file: Path,
    work: Path,
    stop: threading.Event | None = None,
) -> list[str]:
    """Run a command once, and write a case file with a case of a kind.

    Args:
        kind: The kind of case.
        command: What its reference, or only command, is.
        file: The file to write.
        work: A folder for the recording.
        stop: Set by another thread, or a signal, to end the command.

    Returns:
        The keys that are to be filled in.

    Raises:
        CaseFileError: The file exists, or the run leaves nothing to judge.
        OSError: The file cannot be written.
    """
    if file.exists():
        raise CaseFileError(f"{file} exists; name another with -o")
    if problem := only_for_a_shell(command):
        raise CaseFileError(f"the command cannot be a case: {problem}")
    run = run_recorded(
        list(command), out=work / "first.trace", overwrite=True, timeout=DEFAULT_TIMEOUT, stop=stop
    )
    if not run.ok:
        last = run.stderr_tail.strip().splitlines()
        hint = f"; the last line of its stderr: {last[-1]}" if last else ""
        raise CaseFileError(f"the command cannot be a case: {run.problem}{hint}")
    lines = _lines(kind, command, _facts(run), os.path.relpath(Path.cwd(), file.absolute().parent))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [line.split(" ")[0] for line in lines if BLANK in line and not line.startswith("#")]


def _facts(run: Execution) -> Facts:
    traces = open_run(run.trace)
    first = next(iter(traces.values()))
    updates = [entry for entry in first.steps if not entry.tail]
    samples, named = _samples(first, updates[0].number) if updates else (None, False)
    for trace in traces.values():
        trace.close()
    return Facts(
        updates=len(updates),
        micro_batches=max((entry.micro_batches for entry in updates), default=1),
        processes=len(traces),
        samples=samples,
        named=named,
        seconds=run.seconds,
    )


def _samples(trace: Trace, step: int) -> tuple[int | None, bool]:
    """The size of the dataset, if the first step tells it, and whether its samples have IDs."""
    columns, length, named = trace.columns(step), None, False
    for row, number in enumerate(columns.site.tolist()):
        site = trace.sites[number].site
        if site.phase is not Phase.DATA:
            continue
        if site.field == "dataset_length":
            length = trace.scalar(columns, row)
        elif site.field == "sample_ids":
            named |= trace.scalar(columns, row) is not None
    return length if isinstance(length, int) else None, named


def _lines(kind: str, command: Sequence[str], facts: Facts, cwd: str) -> list[str]:
    passes = f"{facts.micro_batches} micro-batch{'es' if facts.micro_batches != 1 else ''}"
    processes = f"{facts.processes} process{'es' if facts.processes != 1 else ''}"
    timeout = max(_LEAST_TIMEOUT, math.ceil(_MARGIN * facts.seconds / 60) * 60)
    words = quoted(shlex.join(command))
    return [
        f"# Begun by tp-verify --init {kind}, which recorded one run: {facts.updates} updates of",
        f"# {passes} in {processes}, {facts.seconds:.1f} s. What is marked {BLANK} it could not",
        "# find out; no case is run before that is filled in.",
        "",
        "[defaults]",
        f"timeout = {timeout}  # seconds for each command",
        *([f"cwd = {quoted('{root}/' + cwd)}"] if cwd != "." else []),
        '# environment = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }  # added; never told in reports',
        '# record = { capture = "values" }  # as the options of tp-record',
        "",
        "[[case]]",
        f'name = "{kind}"',
        f'kind = "{kind}"',
        *_BODIES[kind](words, facts),
    ]


def _resume(words: str, facts: Facts) -> list[str]:
    half = facts.updates // 2
    return [
        f"reference = {words}",
        "# {work} is an empty folder of each command; {save} is that of the saving one.",
        f'save = "{BLANK}: the same training up to step {half} or so, its checkpoint in {{work}}"',
        f'resume = "{BLANK}: the same training to its end, from the checkpoint in {{save}}"',
        '# step_offset = "auto"  # or the update that the resumed run begins with',
        "# repeat_reference = true  # abstains where the reference disagrees with itself",
    ]


def _accumulation(words: str, facts: Facts) -> list[str]:
    count = f'"{BLANK}: micro-batches of an update in the target"'
    return [
        f"reference = {words}",
        f'target = "{BLANK}: the same samples in smaller batches, whose gradients add up"',
        f"microbatches = {{ reference = {facts.micro_batches}, target = {count} }}",
        '# loss = "sum"  # how the losses combine: sum, mean, weighted, skip',
    ]


def _compare(words: str, facts: Facts) -> list[str]:
    return [
        f"reference = {words}",
        f'target = "{BLANK}: the run that should be equal"',
        '# policy = "exact"  # or a preset, a policy file, a table',
        "# repeat_reference = true  # abstains where the reference disagrees with itself",
    ]


def _repeat(words: str, facts: Facts) -> list[str]:
    return [f"command = {words}", "# times = 2"]


def _coverage(words: str, facts: Facts) -> list[str]:
    expected = quoted(f"range(0, {facts.samples})")
    if facts.samples is None:
        expected = f'"{BLANK}: range(0, SIZE) of the dataset, or a list of its IDs"'
    name = "" if facts.named else f', id = "{BLANK}: a field of the batch, as batch[row]"'
    return [
        f"command = {words}",
        f'coverage = {{ policy = "exactly_once", expected = {expected}{name} }}',
    ]


def _check(words: str, facts: Facts) -> list[str]:
    return [
        f"command = {words}",
        '# nonfinite = "allow"  # infinities and NaNs are no violations',
        '# invariants = "good.json"  # what tp-infer learned from good runs',
    ]


def _unchanged(words: str, facts: Facts) -> list[str]:
    return [f"command = {words}", '# stdout = "ignore"  # where it tells the time']


_BODIES = {
    "resume": _resume,
    "accumulation": _accumulation,
    "compare": _compare,
    "repeat": _repeat,
    "coverage": _coverage,
    "check": _check,
    "unchanged": _unchanged,
}
