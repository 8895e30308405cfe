"""Evidence for an operator of a backward pass or an update: what it belongs to, who called it."""

from collections.abc import Iterator, Mapping
from typing import Any

from traceparity.differ.candidates import Candidate
from traceparity.differ.names import operator_of
from traceparity.differ.result import Evidence
from traceparity.differ.step_pair import StepPair
from traceparity.differ.step_view import StepView


def operator_origin(
    pair: StepPair, candidate: Candidate, component: str, field: str
) -> Iterator[Evidence]:
    """Which line of the program led to an operator, in both runs where they differ."""
    operator = operator_of(field)
    if not operator:
        return
    number = pair.sites.number(candidate.block.phase, component, f"{operator}.from")
    said = [_said(view, candidate, number) for view in (pair.reference, pair.target)]
    if said[0] == said[1] or not said[1]:
        said = said[:1]
    elif not said[0]:
        said = said[1:]
    detail = "; in the target ".join(filter(None, said))
    if detail:
        yield Evidence("operator", None, f"{operator} belongs to {detail}")


def _said(view: StepView, candidate: Candidate, number: int | None) -> str:
    for row in view.rows(candidate.block.phase, number):
        same_block = view.block[row] // 2 == candidate.block.number // 2
        if same_block and view.columns.call[row] == candidate.call:
            plain = view.observation(row).plain
            return _sentence(plain) if isinstance(plain, dict) else ""
    return ""


def _sentence(told: Mapping[str, Any]) -> str:
    if "step" in told:
        return f"the optimizer's step called at {told['step']}"
    node = f" ({told['node']})" if told["node"] else ""
    called = f"the backward pass called at {told['backward']}"
    if not told["forward"]:
        return f"{called}{node}"
    return f"the backward of {told['forward']}{node}, in {called}"
