"""The judge: checks a run, step after step, against invariants that were learned from others."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from traceparity.invariants.facts import StepFacts, View
from traceparity.invariants.families import Observers, templates
from traceparity.invariants.finding import Finding
from traceparity.invariants.invariant import Invariant
from traceparity.invariants.learning import placed
from traceparity.invariants.preconditions import Precondition, holds
from traceparity.invariants.template import Event, Learns, Plain, Template

_MOST_MEMBERS = 16


class Coverage(msgspec.Struct, frozen=True):
    """How far an invariant was exercised.

    Attributes:
        invariant: It.
        events: Events that it was judged on.
        reason: Why there was none; empty where there was one.
        unseen: Whether the recording leaves out what would tell.
        remedy: How to record what would tell.
    """

    invariant: Invariant
    events: int
    reason: str
    unseen: bool = False
    remedy: str = ""


class _Rule(msgspec.Struct, frozen=True):
    invariant: Invariant
    template: Template
    precondition: Precondition


class Judge:
    """Judges the processes of one run; steps come in order, those of one step rank by rank.

    What was accepted is judged and counted like the rest, and yields no findings.

    Attributes:
        accepted: How many findings were accepted, by id of the invariant.
        waived: The first of them, by id of the invariant.
    """

    def __init__(self, invariants: Sequence[Invariant]) -> None:
        self._families = tuple(dict.fromkeys(each.relation for each in invariants))
        known = templates(self._families)
        self._rules: dict[str, list[_Rule]] = {}
        for each in invariants:
            template = known[each.template]
            rule = _Rule(each, template, placed(each, template))
            self._rules.setdefault(each.template, []).append(rule)
        self._observers = Observers(self._families)
        self._judged: dict[object, tuple[list[_Rule], list[_Rule]]] = {}
        self._events: dict[str, int] = {each.id: 0 for each in invariants}
        self._contexts: dict[str, set[tuple[Plain, ...]]] = {}
        self._view: View | None = None
        self._visible: dict[str, list[_Rule]] = {}
        self.accepted: dict[str, int] = {}
        self.waived: dict[str, Finding] = {}

    def begin_segment(self) -> None:
        """What follows is read from other traces, in which the run went on."""
        self._observers = Observers(self._families)

    def step(self, facts: StepFacts) -> Iterator[Finding]:
        """Judge a step of one process."""
        yield from _joined(self._judge(facts, self._observers.step(facts)))

    def ranks(self, group: Sequence[StepFacts]) -> Iterator[Finding]:
        """Judge the processes against one another, after each was judged by itself."""
        if len(group) > 1:
            yield from _joined(self._judge(group[0], self._observers.ranks(group)))

    def end(self) -> Iterator[Finding]:
        """Judge what only the end of the run shows."""
        ended = self._observers.end()
        yield from _joined(each for facts, event in ended for each in self._judge(facts, [event]))

    def _judge(self, facts: StepFacts, events: Iterable[Event]) -> Iterator[Finding]:
        if facts.view is not self._view:
            # The same for all steps of a trace, and asked for each event.
            self._view, self._visible = facts.view, self._seen_in(facts.view)
        for event in events:
            rules = self._visible.get(event.template.id)
            if rules is None:
                continue
            # 1 and True are one key in Python and are not the same answer.
            key = event.template.id, event.context, event.outcome, type(event.outcome)
            judged = self._judged.get(key)
            if judged is None:
                judged = self._meet(rules, event)
                if len(self._judged) < 1 << 16 and event.template.learns is Learns.CONSTANT:
                    self._judged[key] = judged
            met, broken = judged
            for rule in met:
                self._events[rule.invariant.id] += event.count
            for rule in broken:
                found = _finding(rule, facts, event)
                if rule.invariant.accepted:
                    ids = self.accepted
                    ids[found.invariant] = ids.get(found.invariant, 0) + 1
                    self.waived.setdefault(found.invariant, found)
                else:
                    yield found

    def _seen_in(self, view: View) -> dict[str, list[_Rule]]:
        """The rules by template, of those that a recording shows."""
        return {
            name: rules
            for name, rules in self._rules.items()
            if view.sees(*rules[0].template.needs)
        }

    def _meet(self, rules: Sequence[_Rule], event: Event) -> tuple[list[_Rule], list[_Rule]]:
        seen = self._contexts.setdefault(event.template.id, set())
        if len(seen) < 1 << 10:
            seen.add(event.context)
        met = [rule for rule in rules if holds(rule.precondition, event.context)]
        return met, [rule for rule in met if _is_broken(rule, event)]

    def coverage(self) -> list[Coverage]:
        """How far each invariant was exercised, and why not."""
        rules = [rule for each in self._rules.values() for rule in each]
        return [self._coverage(rule) for rule in rules]

    def _coverage(self, rule: _Rule) -> Coverage:
        events = self._events[rule.invariant.id]
        if events:
            return Coverage(rule.invariant, events, "")
        view, needs = self._view, rule.template.needs
        remedy = "record the run without these options"
        named = rule.invariant.precondition.get("function", ())
        of_calls = rule.template.family == "function"
        if view is not None and of_calls and not (view.watched and view.watched >= {*named}):
            reason = f"calls of {_listed(named) or 'functions'} were not recorded"
            unseen = [f"{name} {why}" for name, why in view.unseen if name in named]
            if unseen:
                reason, remedy = f"{reason}: {unseen[0]}", "name a function written in Python"
                return Coverage(rule.invariant, 0, reason, unseen=True, remedy=remedy)
            remedy = "record the run with --watch for each of them"
            return Coverage(rule.invariant, 0, reason, unseen=True, remedy=remedy)
        if view is None or view.sees(*needs):
            return Coverage(rule.invariant, 0, self._why_not(rule))
        lacking = ", ".join(each.label for each in needs if each not in view.phases)
        reason = f"the recording leaves out the phase {lacking} (--phases)"
        if view.phases.issuperset(needs):
            reason = "the recording leaves sites out (--include, --exclude)"
        return Coverage(rule.invariant, 0, reason, unseen=True, remedy=remedy)

    def _why_not(self, rule: _Rule) -> str:
        template = rule.template
        seen = self._contexts.get(template.id)
        if not seen:
            return f"no {template.noun} were seen"
        for place, values in rule.precondition:
            there = {context[place] for context in seen}
            if not there & values:
                wanted, got = _listed(values), _listed(there)
                return f"{template.fields[place]} is {got}, and the invariant is about {wanted}"
        return "its precondition was never met"


def _joined(findings: Iterable[Finding]) -> list[Finding]:
    """What breaks one invariant in one step in the same way is one finding."""
    found: dict[tuple[str, int, Any], Finding] = {}
    for each in findings:
        key = each.invariant, each.microbatch, each.seen
        first = found.get(key)
        if first is None:
            found[key] = each
            continue
        named = dict.fromkeys((*first.others, each.component, *each.others))
        others = tuple(name for name in named if name != first.component)
        more = first.more + each.more + max(0, len(others) - _MOST_MEMBERS)
        found[key] = replace(first, others=others[:_MOST_MEMBERS], more=more)
    return list(found.values())


def _listed(values: Iterable[Plain]) -> str:
    said = sorted("none" if value in ("", None) else str(value) for value in values)
    more = f" and {len(said) - 4} more" if len(said) > 4 else ""
    return ", ".join(said[:4]) + more


def _is_broken(rule: _Rule, event: Event) -> bool:
    if event.departs is not None:
        return event.departs(rule.invariant.outcome) is not None
    if rule.template.learns is Learns.CONSTANT:
        expected = rule.invariant.outcome
        same_type = type(expected) is type(event.outcome) or (
            isinstance(expected, float | int)
            and isinstance(event.outcome, float | int)
            and not isinstance(expected, bool)
            and not isinstance(event.outcome, bool)
        )
        return not (same_type and expected == event.outcome)
    number = event.outcome
    if not isinstance(number, int | float):
        return False
    low, high = rule.invariant.low, rule.invariant.high
    return (low is not None and number < low) or (high is not None and number > high)


def _finding(rule: _Rule, facts: StepFacts, event: Event) -> Finding:
    members = event.members() if event.members is not None else []
    others = tuple(name for name in members[: _MOST_MEMBERS + 1] if name != event.component)
    template, invariant = rule.template, rule.invariant
    found = facts.finding(
        invariant.rule(template.hint),
        template.phase,
        event.component,
        _field(template, event),
        _expected(rule),
        _seen(template, event),
        row=event.row if event.row >= 0 else None,
        others=others,
        more=max(0, len(members) - 1 - len(others)),
    )
    departure = event.departs(invariant.outcome) if event.departs is not None else None
    if departure is None:
        return found
    return replace(found, step=departure.step, expected=departure.expected, seen=departure.seen)


def _field(template: Template, event: Event) -> str:
    if template.shows in template.fields:
        return str(event.context[template.fields.index(template.shows)])
    return template.shows


def _expected(rule: _Rule) -> str:
    invariant = rule.invariant
    if rule.template.learns is Learns.MOST:
        return f"at most {invariant.high:g}"
    if rule.template.learns is Learns.RANGE:
        return f"between {invariant.low:g} and {invariant.high:g}"
    return rule.template.say(invariant.outcome)


def _seen(template: Template, event: Event) -> str:
    if template.learns is not Learns.CONSTANT:
        return event.seen or f"{event.outcome}"
    said = template.say(event.outcome)
    return f"{said} ({event.seen})" if event.seen and event.seen not in said else said
