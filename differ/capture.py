"""What both recordings were told to keep: only that can be compared."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from traceparity.differ.policy import Policy


@dataclass(frozen=True, slots=True)
class CommonCapture:
    """What two recordings have in common.

    Attributes:
        policy: The policy, narrowed to what both sides recorded.
        not_recorded: For each declared phase that a side did not record, a sentence.
        choice_differs: Whether the sides recorded different choices of sites.
    """

    policy: Policy
    not_recorded: tuple[str, ...]
    choice_differs: bool


def common_capture(
    policy: Policy, reference: Mapping[str, Any], target: Mapping[str, Any]
) -> CommonCapture:
    """Narrow a policy to the phases and sites that both recordings kept."""
    phases, missing = [], []
    for phase in policy.align.phases:
        lacking = [
            side
            for side, capture in (("reference", reference), ("target", target))
            if capture.get("phases") and phase not in capture["phases"]
        ]
        if lacking:
            missing.append(f"the {' and the '.join(lacking)} did not record the phase {phase}")
        else:
            phases.append(phase)
    choice = [
        [sorted(capture.get(name) or ()) for name in ("include", "exclude", "operators")]
        for capture in (reference, target)
    ]
    align = replace(policy.align, phases=tuple(phases))
    if choice[0] != choice[1]:
        align = replace(align, unmatched="allow")
    return CommonCapture(replace(policy, align=align), tuple(missing), choice[0] != choice[1])
