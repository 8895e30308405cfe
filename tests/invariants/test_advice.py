"""Advice decides nothing, not even by failing."""

from traceparity.differ.policy import Policy
from traceparity.invariants.finding import Rule
from traceparity.invariants.laws.choice import LawChoice
from traceparity.invariants.laws.law import Law
from traceparity.verify.run_verdict import judge_run
from traceparity.verify.verdict_text import as_text


class Broken:
    def step(self, facts):
        raise IndexError("ours")

    def end(self):
        return iter(())


def test_a_fault_in_advice_leaves_the_verdict_as_it_is(recorded):
    import loops

    trace = recorded(loops.clipped)
    law = Law(Rule("update", "broken", "nothing holds"), judge=Broken)

    alone = judge_run([trace], Policy())
    advised = judge_run([trace], Policy(), laws=LawChoice(advised=(law,)))

    assert (advised.outcome, advised.reason) == (alone.outcome, alone.reason)
    assert "IndexError('ours')" in as_text(advised)
