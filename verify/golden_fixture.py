"""Golden traces of tests: what a training gave when it was right, kept in the repository."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from traceparity.verify.same_training import AnyPath, compare_training

if TYPE_CHECKING:
    from traceparity.differ.policy import Policy


class Golden:
    """The golden traces of one test."""

    def __init__(self, stem: Path, *, update: bool, tell: Callable[[str], None]) -> None:
        """Prepare.

        Args:
            stem: Path of the golden traces, less what follows the test's name.
            update: Whether they are rewritten.
            tell: Takes what was rewritten, and the report of what changed.
        """
        self._stem = stem
        self._update = update
        self._tell = tell
        self._written: set[Path] = set()

    def __call__(
        self,
        trace: AnyPath,
        name: str = "",
        policy: "Policy | AnyPath | None" = None,
        *,
        elsewhere: "Policy | AnyPath | None" = None,
    ) -> None:
        """Assert that a trace agrees with the golden one; with ``--tp-update``, replace that.

        What a test has written is not written again: a second trace must agree with it.

        Args:
            trace: What the test has recorded; ``capture="digest"`` keeps it small.
            name: Tells several golden traces of a test apart.
            policy: The declared relation, as for `assert_same_training`.
            elsewhere: The relation where the golden trace comes from another machine or another
                version of torch, of CUDA or of numpy; None for ``policy``.

        Raises:
            AssertionError: It does not agree, that cannot be judged, or there is no golden trace.
            TraceError: A trace cannot be used.
            PolicyError: A policy cannot be read or declares something impossible.
        """
        __tracebackhide__ = True
        golden = self._stem.with_name(f"{self._stem.name}{name and f'.{name}'}.trace")
        if not Path(trace).exists():
            raise AssertionError(f"nothing was recorded: there is no trace {trace}")
        if self._update and golden not in self._written:
            self._rewrite(golden, Path(trace))
            self._written.add(golden)
        elif not golden.exists():
            raise AssertionError(
                f"there is no golden trace {golden};"
                " record it with pytest --tp-update and commit it"
            )
        else:
            _compare(golden, Path(trace), policy, elsewhere)

    def _rewrite(self, golden: Path, trace: Path) -> None:
        from traceparity.differ.report_text import as_text
        from traceparity.verify.golden import renew

        renewal = renew(golden, trace)
        if renewal.changed:
            report = as_text(renewal.result) if renewal.result else ""
            self._tell(f"{renewal.reason}\n{report}".rstrip())


def _compare(
    golden: Path,
    trace: Path,
    policy: "Policy | AnyPath | None",
    elsewhere: "Policy | AnyPath | None",
) -> None:
    __tracebackhide__ = True
    from traceparity.differ.report_text import as_text
    from traceparity.differ.result import Outcome
    from traceparity.verify.reference import made_elsewhere, named

    differences = made_elsewhere(golden, trace)
    declared = elsewhere if differences and elsewhere is not None else policy
    result = compare_training(golden, trace, declared)
    if result.outcome is Outcome.PASS:
        return
    message = [as_text(result), f"If the change is meant: pytest --tp-update rewrites {golden}"]
    if differences:
        message.insert(0, f"The golden trace was recorded elsewhere: {named(differences)}.\n")
    # Raised with its finished message: pytest does not rewrite assertions of installed code.
    raise AssertionError("\n".join(message))
