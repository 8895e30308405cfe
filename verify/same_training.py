"""The assertion that two recorded trainings are the same, for tests."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceparity.differ.policy import Policy
    from traceparity.differ.result import DiffResult

AnyPath = str | os.PathLike[str]


def compare_training(
    reference: AnyPath, target: AnyPath, policy: "Policy | AnyPath | None" = None
) -> "DiffResult":
    """Compare two traces, or folders of traces.

    Args:
        reference: The reference.
        target: The target.
        policy: The declared relation: a policy, a policy file, or the name of a preset; left out,
            everything is equal from the first step.

    Raises:
        TraceError: A trace cannot be used.
        PolicyError: The policy cannot be read or declares something impossible.
    """
    # Imported here, since a pytest that never compares anything loads this module too.
    from traceparity.differ.diff import diff_runs
    from traceparity.tracefmt.location import location

    return diff_runs(location(reference), [location(target)], policy_of(policy))


def policy_of(policy: "Policy | AnyPath | None") -> "Policy":
    """A policy from the ways in which tests name one.

    Raises:
        PolicyError: It cannot be read or declares something impossible.
    """
    from traceparity.differ.policy import Policy
    from traceparity.differ.policy_file import read_policy

    if policy is None:
        return Policy()
    return policy if isinstance(policy, Policy) else read_policy(Path(policy))


def assert_same_training(
    reference: AnyPath, target: AnyPath, policy: "Policy | AnyPath | None" = None
) -> None:
    """Assert that a recorded training satisfies its relation to another one.

    Missing evidence (ABSTAIN) is no agreement: it fails the assertion as well.

    Args:
        reference: Trace or folder of traces.
        target: Trace or folder of traces.
        policy: The declared relation; see `compare_training`.

    Raises:
        AssertionError: It does not, or that cannot be judged; the message is the text report.
        TraceError: A trace cannot be used.
        PolicyError: The policy cannot be read or declares something impossible.
    """
    __tracebackhide__ = True
    from traceparity.differ.report_text import as_text
    from traceparity.differ.result import Outcome

    result = compare_training(reference, target, policy)
    if result.outcome is not Outcome.PASS:
        # Raised with its finished message: pytest does not rewrite assertions of installed code.
        raise AssertionError(as_text(result))
