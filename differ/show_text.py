"""What `tp-show` says, as text in 80 columns."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from traceparity.differ.describe import describe
from traceparity.differ.show import (
    Request,
    Shown,
    find_step,
    observation_count,
    observations,
    sites_of,
)
from traceparity.tracefmt.reader import Trace
from traceparity.tracefmt.records import Flag, Phase, StepEntry
from traceparity.tracefmt.verification import Verdict

_WIDTH = 80
_LABEL = 15
_NAME = 32
_MOST_STEPS = 20
_MOST_DAMAGE = 20
_PHASE_HEADS = ("state", "data", "fwd", "loss", "bwd", "grad", "optim", "sched")
_DIM, _BOLD, _GREEN, _RED, _YELLOW = "2", "1", "32;1", "31;1", "33;1"

Paint = Callable[[str, str], str]


def painter(*, colour: bool) -> Paint:
    """What colours a text: nothing, unless ``colour`` is wanted."""
    return (lambda text, code: f"\x1b[{code}m{text}\x1b[0m") if colour else (lambda text, _: text)


def printable(text: str) -> str:
    """The text without what would move a terminal's cursor or change its colours."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def report(traces: Mapping[int, Trace], request: Request, paint: Paint) -> Iterator[str]:
    """The lines that answer a request."""
    if len(traces) > 1 and request.is_overview and not request.all_steps:
        yield from _ranks(traces, paint)
        return
    for count, (rank, trace) in enumerate(traces.items()):
        if count:
            yield ""
        if len(traces) > 1:
            yield paint(f"rank {rank}", _BOLD)
        yield from _told(trace, request, paint)


def _told(trace: Trace, request: Request, paint: Paint) -> Iterator[str]:
    if request.sites:
        yield from _sites(trace, request.globs, paint)
    elif request.steps:
        for count, number in enumerate(request.steps):
            if count:
                yield ""
            yield from _step(trace, find_step(trace, number), request.globs, paint)
    elif request.globs:
        yield from _site(trace, request.globs, paint)
    else:
        yield from _overview(trace, paint, all_steps=request.all_steps)


def check_report(verdicts: Mapping[int, Verdict], paint: Paint) -> Iterator[str]:
    """How sound the files of a run are."""
    for count, found in enumerate(verdicts.values()):
        if count:
            yield ""
        yield from _verdict(found, paint)


def _overview(trace: Trace, paint: Paint, *, all_steps: bool) -> Iterator[str]:
    """The header, what was not observed, and the steps."""
    header = trace.header
    yield paint(printable(str(trace.path)), _BOLD) + "  " + _state(trace, paint)
    if trace.incomplete_reason:
        yield from _wrapped(printable(trace.incomplete_reason), "  ")
    version = ".".join(map(str, header.format_version))
    rows = {
        "program": " ".join([header.program, *header.arguments]),
        "process": _flat(header.process),
        "rank": f"{header.rank} of {header.world_size}",
        "versions": _flat(header.versions),
        "environment": _flat(header.environment),
        "capture": _flat(header.capture),
        "format": version,
        "steps": _step_range(trace),
        "observations": f"{observation_count(trace):,} at {len(trace.sites):,} sites",
        "digest": trace.content_digest,
    }
    for label, text in rows.items():
        yield from _row(label, text, paint)
    for note in trace.not_observed:
        where = note.component or "(the whole run)"
        yield from _row("not observed", f"{where}: {note.reason}", paint)
    if len(trace.steps):
        yield ""
        yield from _steps(trace, paint, all_steps=all_steps)


def _state(trace: Trace, paint: Paint) -> str:
    return paint("complete", _GREEN) if trace.complete else paint("incomplete", _YELLOW)


def _flat(facts: Mapping[str, Any], prefix: str = "") -> str:
    parts = []
    for name, value in facts.items():
        if value is None or value in ("", [], ()):
            continue
        if isinstance(value, Mapping):
            parts.append(_flat(value, f"{prefix}{name}."))
        elif isinstance(value, list | tuple):
            parts.append(f"{prefix}{name} {', '.join(map(str, value))}")
        else:
            parts.append(f"{prefix}{name} {value}")
    return "; ".join(part for part in parts if part)


def _step_range(trace: Trace) -> str:
    steps = trace.steps
    text = "none"
    if len(steps):
        text = f"{len(steps):,} ({steps[0].number} to {steps[-1].number})"
    if trace.lost:
        text += f"; lost: {', '.join(map(str, trace.lost[:10]))}"
    if trace.unfinished:
        text += f"; step {trace.unfinished.number} was being written and is not counted"
    return text


def _row(label: str, text: str, paint: Paint) -> Iterator[str]:
    if not text:
        return
    lines = textwrap.wrap(printable(text), _WIDTH - _LABEL, break_on_hyphens=False)
    for number, line in enumerate(lines):
        name = f"  {label}" if not number else ""
        yield paint(name, _DIM) + " " * (_LABEL - len(name)) + line


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def _steps(trace: Trace, paint: Paint, *, all_steps: bool) -> Iterator[str]:
    heads = "".join(f"{head:>7}" for head in _PHASE_HEADS)
    yield paint(f"{'step':>7}{'batches':>8}{heads}", _BOLD)
    steps: Sequence[StepEntry | None] = trace.steps
    if not all_steps and len(steps) > _MOST_STEPS:
        steps = (*steps[: _MOST_STEPS - 5], None, *steps[-5:])
    for step in steps:
        if step is None:
            yield paint(f"{'...':>7}   {len(trace.steps) - _MOST_STEPS:,} more; --steps", _DIM)
            continue
        counts = "".join(f"{step.observations[phase] or '-':>7}" for phase in Phase)
        yield f"{step.number:>7}{step.micro_batches:>8}{counts}" + ("  tail" if step.tail else "")


def _ranks(traces: Mapping[int, Trace], paint: Paint) -> Iterator[str]:
    """One line for each process of a run."""
    yield paint(f"{'rank':>6}{'steps':>9}{'observations':>14}  digest", _BOLD)
    for rank, trace in traces.items():
        count = observation_count(trace)
        line = f"{rank:>6}{len(trace.steps):>9,}{count:>14,}  {trace.content_digest}"
        yield f"{line}  {_state(trace, paint)}"
        if trace.incomplete_reason:
            yield from _wrapped(printable(trace.incomplete_reason), " " * 8)
    yield paint("one of them: --rank N", _DIM)


def _sites(trace: Trace, globs: Sequence[str], paint: Paint) -> Iterator[str]:
    """The matching sites, by phase, each with the source line that first led there."""
    phase = None
    for entry in sites_of(trace, globs):
        if entry.site.phase != phase:
            if phase is not None:
                yield ""
            phase = entry.site.phase
            yield paint(phase.label, _BOLD)
        yield from _named(_name(entry.site.component, entry.site.field), entry.location, paint)


def _step(trace: Trace, entry: StepEntry, globs: Sequence[str], paint: Paint) -> Iterator[str]:
    """One step: its numbers, then its observations at the matching sites."""
    facts = [f"{sum(entry.observations):,} observations"]
    if entry.micro_batches > 1:
        facts.append(f"{entry.micro_batches} micro-batches")
    if entry.tail:
        facts.append("the tail: no update ends it")
    if not entry.whole:
        facts.append("unfinished: the recording was cut off inside it")
    yield f"{paint(f'step {entry.number}', _BOLD)}  {', '.join(facts)}"
    heading = None
    for shown in observations(trace, entry.number, globs):
        here = shown.site.phase.label
        if entry.micro_batches > 1 and Phase.DATA <= shown.site.phase <= Phase.BACKWARD:
            here += f", micro-batch {shown.microbatch}"
        if here != heading:
            heading = here
            yield ""
            yield paint(here, _BOLD)
        yield from _observation(shown, paint)


def _observation(shown: Shown, paint: Paint) -> Iterator[str]:
    text = describe(shown.seen)
    marks = [f"call {shown.call + 1}"] if shown.call else []
    if shown.seen.flags:
        marks += _marks(shown)
    if marks:
        text += f"  ({', '.join(marks)})"
    name = _name(shown.site.component, shown.site.field)
    yield from _named(name, text, paint, dim=shown.is_context)


def _marks(shown: Shown) -> list[str]:
    marks = []
    if shown.seen.flags & Flag.EVALUATION:
        marks.append("evaluation")
    elif shown.is_context:
        marks.append("context")
    if shown.seen.flags & Flag.RECOMPUTED:
        marks.append("recomputed")
    return marks


def _site(trace: Trace, globs: Sequence[str], paint: Paint) -> Iterator[str]:
    """The matching sites over all steps."""
    entries = sites_of(trace, globs)
    if len(entries) > 1:
        for number, entry in enumerate(trace.steps):
            if number:
                yield ""
            yield from _step(trace, entry, globs, paint)
        return
    yield f"{paint(printable(str(entries[0].site)), _BOLD)}  {printable(entries[0].location)}"
    stateful = False
    for entry in trace.steps:
        for shown in observations(trace, entry.number, globs):
            stateful |= bool(shown.seen.flags & Flag.STATEFUL)
            place = f"step {entry.number}"
            if shown.microbatch:
                place += f", micro-batch {shown.microbatch}"
            if shown.call:
                place += f", call {shown.call + 1}"
            yield from _named(place, describe(shown.seen), paint, dim=shown.is_context)
    if stateful:
        yield paint("no line for a step: the value stayed as it was", _DIM)


def _name(component: str, field: str) -> str:
    return f"{component or '(root)'}  {field}"


def _named(name: str, text: str, paint: Paint, *, dim: bool = False) -> Iterator[str]:
    """A name and what is said of it: side by side, or below where the name is long."""
    name = f"  {printable(name)}"
    lines = _wrapped_value(printable(text))
    if len(name) >= _NAME:
        yield paint(name, _DIM) if dim else name
        name = ""
    for number, line in enumerate(lines):
        whole = f"{'' if number else name:<{_NAME}}{line}".rstrip()
        if whole:
            yield paint(whole, _DIM) if dim else whole


def _wrapped_value(text: str) -> list[str]:
    """The text in lines; a step may have a million of them, and textwrap is slow."""
    width, lines, rest = _WIDTH - _NAME, [], text.strip()
    while len(rest) > width:
        cut = rest.rfind(" ", 0, width + 1)
        if cut < 0:
            return textwrap.wrap(text, width, break_on_hyphens=False)
        lines.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*lines, rest]


def _verdict(found: Verdict, paint: Paint) -> Iterator[str]:
    """How sound a file is, and what is lost."""
    word = "sound" if found.sound else "damaged" if found.damage or found.lost else "incomplete"
    colour = _GREEN if found.sound else _RED if word == "damaged" else _YELLOW
    yield f"{paint(printable(str(found.path)), _BOLD)}  {paint(word, colour)}"
    yield from _row("size", f"{found.size:,} bytes, {found.records:,} sound records", paint)
    yield from _row("steps", f"{found.steps:,} can be read in full", paint)
    if found.reason:
        yield from _row("recording", found.reason, paint)
    if found.lost:
        yield from _row("lost steps", ", ".join(map(str, found.lost)), paint)
    if found.unfinished is not None:
        yield from _row("unfinished", f"step {found.unfinished}, cut off inside", paint)
    for damage in found.damage[:_MOST_DAMAGE]:
        where = f"{damage.end - damage.offset:,} bytes at {damage.offset:,}: {damage.reason}"
        if damage.steps:
            where += f" (step {', '.join(map(str, damage.steps))})"
        yield from _row("damage", where, paint)
    if len(found.damage) > _MOST_DAMAGE:
        yield from _row("", f"{len(found.damage) - _MOST_DAMAGE} more places", paint)
