"""Built-in laws on real trainings: each planted bug at its place, nothing on sound programs."""

import corpus
import healthy as odd
import healthy_data
import healthy_updates
import pytest
from judging import judged, told

LAWFUL = [bug for bug in corpus.BUGS if bug.law]
QUICK = {"zero_grad missing", "clipped on one rank", "optimizer on copies"}
ODD = (*odd.PROGRAMS, *healthy_updates.PROGRAMS, *healthy_data.PROGRAMS)
QUICK_ODD = (healthy_updates.cleared_by_hand, odd.adversaries)
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, id=bug.name, marks=() if bug.name in QUICK else SLOW) for bug in LAWFUL],
)
def test_a_bug_is_one_cause_at_its_place(bug, recorded):
    """Step, phase and object are those where it happens, and what follows is counted under it."""
    result = judged(recorded(bug.train, bug.name, processes=bug.processes))

    assert len(result.causes) == 1, told(result)
    first = result.causes[0].first
    place = first.invariant, first.step, first.phase.label, first.component
    assert place in [(bug.law, bug.step, bug.phase, name) for name in bug.component], told(result)


def test_the_laws_alone_find_two_thirds_of_the_bugs():
    assert len(LAWFUL) >= 2 / 3 * len(corpus.BUGS)
    assert len(corpus.BUGS) >= 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "processes"),
    corpus.SOUND,
    ids=[f"{train.__module__}.{train.__name__}" for train, _ in corpus.SOUND],
)
def test_the_sound_twin_of_a_bug_breaks_no_law(train, processes, recorded):
    assert told(judged(recorded(train, processes=processes))) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug", [bug for bug in corpus.BUGS if not bug.law], ids=lambda bug: bug.name
)
def test_what_only_a_reference_can_show_is_left_to_it(bug, recorded):
    """No law guesses at what may be meant: a rate, an order, layers that are frozen."""
    assert told(judged(recorded(bug.train, bug.name, processes=bug.processes))) == []


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            each, id=each.__name__, marks=() if each is healthy_updates.cleared_by_hand else SLOW
        )
        for each in (*odd.PROGRAMS, *healthy_updates.PROGRAMS, *healthy_data.PROGRAMS)
    ],
)
def test_a_sound_program_that_looks_odd_breaks_no_law(program, healthy):
    assert told(judged(healthy(program))) == []
