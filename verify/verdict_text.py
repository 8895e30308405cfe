"""The text report of a check: the causes first, then what the differ's part says."""

from collections.abc import Sequence

from traceparity.differ.check_text import sections as check_sections
from traceparity.differ.report_layout import WIDTH, Paint, bullets, headline, painter, row, section
from traceparity.invariants.causes import Cause
from traceparity.invariants.finding import Finding
from traceparity.invariants.result import InvariantsResult
from traceparity.verify.run_verdict import RunVerdict

_CAUSES = 3
_NOT_EXERCISED = 4
_NAMES = 3
_INVARIANTS = "Broken invariants, the earliest first"
_LAWS = "Broken laws, the earliest first"
_ADVICE = "Advice: this decides nothing (--builtin makes it decide)"


def as_text(
    verdict: RunVerdict, *, colour: bool = False, verbose: bool = False, width: int = WIDTH
) -> str:
    """The report, in so many columns; ``verbose`` leaves nothing out."""
    paint = painter(colour=colour, width=width)
    learned = verdict.invariants
    sections = [headline(verdict.outcome, verdict.reason, paint)]
    if verdict.laws is not None:
        sections.append(_causes(_LAWS, verdict.laws.causes, paint, verbose=verbose))
    if learned is not None:
        sections.append(_causes(_INVARIANTS, learned.causes, paint, verbose=verbose))
        sections.append(_not_exercised(learned, paint, verbose=verbose))
    advice = verdict.advice
    if advice is not None:
        sections.append(_causes(_ADVICE, advice.causes, paint, verbose=verbose))
        sections.append(section("No advice", [advice.fault] if advice.fault else [], paint))
    sections += check_sections(verdict.check, paint, verbose=verbose)
    return "\n".join("\n".join(lines) + "\n" for lines in sections if lines)


def _causes(title: str, causes: Sequence[Cause], paint: Paint, *, verbose: bool) -> list[str]:
    if not causes:
        return []
    shown = causes if verbose else causes[:_CAUSES]
    lines = [paint(title, "1")]
    word = "invariant" if title == _INVARIANTS else "law"
    for number, cause in enumerate(shown):
        if number:
            lines.append("")
        lines += _cause(word, cause, paint, verbose=verbose)
    if len(causes) > len(shown):
        more = f"{len(causes) - len(shown)} more causes (-v shows them)"
        lines += ["", *bullets([more], paint.width)]
    return lines


def _cause(word: str, cause: Cause, paint: Paint, *, verbose: bool) -> list[str]:
    found = cause.first
    lines = [*row("where", _where(found), paint), *row(word, _invariant(found), paint)]
    lines += row("expected", str(found.expected), paint)
    lines += row("seen", str(found.seen), paint)
    if found.location:
        lines += row("source", found.location, paint)
    if found.hint:
        lines += row("look at", found.hint, paint)
    if cause.follow:
        lines += row("then", _follow(cause), paint)
    if verbose:
        for sentence, count in _others(cause).items():
            lines += row("", f"{sentence} ({count} times)", paint)
    return lines


def _where(found: Finding) -> str:
    batch = f", micro-batch {found.microbatch}" if found.microbatch else ""
    rank = f" of rank {found.rank}" if found.rank else ""
    names = [found.component or "(root)", *found.others][:_NAMES]
    total = 1 + len(found.others) + found.more
    more = f" and {total - len(names)} more" if total > len(names) else ""
    field = f" {found.field}" if found.field else ""
    return f"step {found.step}{rank}{batch}, {found.phase.label}: {', '.join(names)}{more}{field}"


def _invariant(found: Finding) -> str:
    return f"{found.sentence} [{found.invariant}]"


def _follow(cause: Cause) -> str:
    count = len(cause.follow)
    until = f", until step {cause.last_step}" if cause.last_step > cause.first.step else ""
    return f"{count} {'follows' if count == 1 else 'follow'}{until}"


def _others(cause: Cause) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in cause.follow:
        counts[_invariant(each)] = counts.get(_invariant(each), 0) + 1
    return counts


def _not_exercised(learned: InvariantsResult, paint: Paint, *, verbose: bool) -> list[str]:
    idle = [each for each in learned.coverage if not each.events]
    shown = idle if verbose else idle[:_NOT_EXERCISED]
    texts = [f"{each.invariant.text} [{each.invariant.id}]: {each.reason}" for each in shown]
    if len(idle) > len(shown):
        texts.append(f"{len(idle) - len(shown)} more (-v shows them)")
    title = f"Not exercised: {len(idle)} of {len(learned.coverage)} invariants"
    return section(title, texts, paint)
