"""Reports of cases for continuous integration: JUnit, GitHub annotations, a Markdown summary."""

from traceparity.differ.report_ci import github, junit_case, junit_suite
from traceparity.differ.report_markdown import plain, sign, unfolding
from traceparity.differ.result import Outcome
from traceparity.verify.report_text import case_text
from traceparity.verify.result import CaseResult, VerifyResult
from traceparity.verify.verdict_ci import location


def as_junit(result: VerifyResult) -> str:
    """A JUnit file with a test case for each case."""
    name = str(result.path)
    cases = [
        (
            case.outcome,
            junit_case(
                f"traceparity.verify.{case.kind}", case.name, case.outcome, case.verdict.reason,
                case_text(case), case.seconds,
            ),
        )
        for case in result.cases
    ]  # fmt: skip
    if result.problem:
        text = junit_case("traceparity.verify", name, Outcome.ERROR, result.problem, result.problem)
        cases.append((Outcome.ERROR, text))
    return junit_suite(name, cases)


def as_github(result: VerifyResult) -> str:
    """A workflow command for each case, at the source line where one is known."""
    if result.problem:
        return github(Outcome.ERROR, result.problem, "")
    return "".join(
        github(case.outcome, case.verdict.reason, _location(case), case.name)
        for case in result.cases
    )


def _location(case: CaseResult) -> str:
    verdict = case.verdict
    if verdict.comparison is not None and verdict.comparison.first:
        return verdict.comparison.first.location
    return location(verdict.check) if verdict.check is not None else ""


def as_markdown(result: VerifyResult) -> str:
    """A table of the cases, and a report to unfold for each that does not pass."""
    lines = [
        f"### {sign(result.outcome)} {plain(str(result.path))}",
        "",
        plain(result.reason),
        "",
    ]
    if result.cases:
        lines += ["| case | kind | outcome | seconds | reason |", "|---|---|---|---|---|"]
    lines += [
        f"| {plain(case.name)} | {case.kind} | {sign(case.outcome)} | {case.seconds:.1f} "
        f"| {plain(case.verdict.reason)} |"
        for case in result.cases
    ]
    reports = [
        unfolding(case.name, case_text(case))
        for case in result.cases
        if case.outcome is not Outcome.PASS
    ]
    return "\n".join([*lines, "", *reports]) + "\n"
