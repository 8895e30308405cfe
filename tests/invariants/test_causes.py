"""Findings are put together by cause, the earliest first."""

from dataclasses import replace

from traceparity.invariants.causes import causes_beside, causes_of
from traceparity.invariants.finding import Finding
from traceparity.tracefmt.records import Phase


def finding(relation: str, step: int, phase: Phase = Phase.FORWARD) -> Finding:
    return Finding(relation, f"{relation}-1", step, phase, "w", "value", "a", "b", "a holds")


def test_what_follows_from_a_finding_is_counted_under_it():
    found = [finding("update", 2), finding("gradient", 1, Phase.GRADIENT), finding("update", 3)]

    causes = causes_of(found)

    assert [(each.first.relation, len(each.follow), each.last_step) for each in causes] == [
        ("gradient", 2, 3)
    ]


def test_what_cannot_follow_is_a_cause_of_its_own():
    causes = causes_of([finding("hyperparameter", 0), finding("data", 4)])

    assert [each.first.relation for each in causes] == ["hyperparameter", "data"]


def test_a_missing_call_is_the_last_explanation_of_its_step():
    causes = causes_of([finding("phase", 1, Phase.DATA), finding("gradient", 1, Phase.GRADIENT)])

    assert [each.first.relation for each in causes] == ["gradient"]


def test_nothing_comes_of_nothing():
    assert causes_of([]) == []


def test_what_follows_from_an_accepted_deviation_is_accepted_with_it():
    mode, drawn = finding("mode", 2), finding("randomness", 3)

    assert causes_beside([drawn], [mode]) == ([], {drawn.invariant: 1})
    (cause,), covered = causes_beside([drawn, finding("data", 1)], [mode])
    assert (cause.first.relation, covered) == ("data", {drawn.invariant: 1})


def test_a_tie_that_was_lost_comes_before_what_follows_from_it():
    tie = replace(finding("equality", 0, Phase.STATE), field="shared_with")

    (cause,) = causes_of([finding("write", 0, Phase.STATE), tie])

    assert cause.first is tie
