"""The command ``tp-check``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceparity._version import __version__
from traceparity.cli.exits import Exit, run_command
from traceparity.cli.locations import LOCATION
from traceparity.cli.outputs import (
    FORMATS,
    clear_outputs,
    parse_outputs,
    parse_trackers,
    report_option,
    report_width,
    track_result,
    wants_colour,
    write_reports,
)
from traceparity.cli.paths import PATH
from traceparity.tracefmt.errors import TraceparityError
from traceparity.tracefmt.location import Location

if TYPE_CHECKING:
    from traceparity.differ.policy import Policy
    from traceparity.invariants.invariant import Invariant
    from traceparity.invariants.laws.choice import LawChoice
    from traceparity.verify.run_verdict import RunVerdict

_RULES = ("exactly_once", "at_least_once", "no_cross_rank_overlap", "expected_padding")


@click.command("tp-check", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("trace", type=LOCATION, nargs=-1, required=True)
@click.option("--policy", "policy_file", type=PATH, help="A policy file.")
@click.option("--coverage", "rule", type=click.Choice(_RULES), help="Which samples must be seen.")
@click.option("--id", metavar="FIELD", help='What names a sample: "sampler", or "batch[row]".')
@click.option("--expected", metavar="IDS", help='"range(0, 50000)", or a list: "[1, 2, 3]".')
@click.option("--scope", type=click.Choice(["epoch", "trace"]), help="Over what (default: epoch).")
@click.option(
    "--count", type=click.Choice(["trained", "fetched"]), help="Which batches (default: trained)."
)
@click.option("--padding", type=click.IntRange(min=0), metavar="N", help="Surplus of each scope.")
@click.option("--invariants", type=PATH, help="What tp-infer learned from good runs.")
@click.option(
    "--accept", multiple=True, metavar="ID=REASON", help="Record a deviation as deliberate."
)
@click.option("--builtin", is_flag=True, help="All built-in laws decide, rather than advise.")
@click.option("--replicas", is_flag=True, help="Processes must hold the same replicas.")
@click.option("--law", "laws", multiple=True, metavar="ID", help="A built-in law decides.")
@click.option("--without-law", multiple=True, metavar="ID", help="A law is not applied.")
@click.option("--no-advice", is_flag=True, help="Laws that do not decide are not judged.")
@click.option("--allow-nonfinite", is_flag=True, help="Infinities and NaNs are no violations.")
@click.option("--ignore", multiple=True, metavar="GLOB", help="Sites where anything may be.")
@click.option(
    "--format", "formats", multiple=True, metavar="FORMAT[=PATH]", help=f"{', '.join(FORMATS)}."
)
@report_option
@click.option("--allow-abstain", is_flag=True, help="Exit with 0 where nothing can be judged.")
@click.option("-v", "--verbose", is_flag=True, help="Leave nothing out of the text report.")
@click.version_option(__version__)
def check(
    trace: tuple[Location, ...],
    formats: tuple[str, ...],
    trackers: tuple[str, ...],
    invariants: Path | None,
    accept: tuple[str, ...],
    allow_nonfinite: bool,
    allow_abstain: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Judge one run: its samples, values that are not finite, what good runs always keep.

    TRACE is what tp-record wrote: a .trace file, or a folder with one for each process. A run that
    stopped and went on may be given in several segments.

    Exit status: 0 PASS, 1 FAIL, 2 ERROR, 3 ABSTAIN.
    """
    from traceparity.differ.policy import Policy
    from traceparity.verify.run_verdict import judge_run, verdict_on_error

    outputs, logged = parse_outputs(formats, trace), parse_trackers(trackers)
    clear_outputs(outputs)
    policy: Policy = Policy()
    try:
        policy = _policy(options)
        result = judge_run(
            trace,
            policy,
            finite=not allow_nonfinite,
            invariants=_invariants(invariants, accept),
            file=invariants,
            laws=_laws(options, policy),
        )
    except TraceparityError as error:
        click.echo(f"tp-check: {error}", err=True)
        result = verdict_on_error(str(error), trace, policy)
        # There is nothing to print, but a file that was asked for says so too.
        outputs = [output for output in outputs if output[1]]
    write_reports(
        outputs,
        lambda name, path: _render(result, name, path, verbose=verbose),
        lambda: _summary(result),
    )
    track_result(logged, "tp-check", lambda: _render(result, "json", None, verbose=verbose))
    status = Exit[result.outcome.name]
    sys.exit(Exit.PASS if allow_abstain and status is Exit.ABSTAIN else status)


def _policy(options: dict[str, Any]) -> "Policy":
    from traceparity.differ.policy_options import with_coverage_options, with_options

    policy = with_options(options["policy_file"], ignore=options["ignore"])
    names = ("rule", "id", "expected", "scope", "count", "padding")
    return with_coverage_options(policy, **{name: options[name] for name in names})


def _laws(options: dict[str, Any], policy: "Policy") -> "LawChoice":
    from traceparity.invariants.laws.choice import choose

    return choose(
        builtin=options["builtin"],
        replicas=options["replicas"],
        laws=options["laws"],
        without=options["without_law"],
        advice=not options["no_advice"],
        policy=dict(policy.laws),
    )


def _invariants(file: Path | None, accept: tuple[str, ...]) -> "list[Invariant]":
    if file is None:
        if accept:
            raise click.UsageError("--accept needs the file that it is recorded in: --invariants")
        return []
    from traceparity.invariants.file import accepted, read_invariants, write_invariants

    found = read_invariants(file)
    if accept:
        found = accepted(found, accept)
        write_invariants(file, found)
    return found


def _render(result: "RunVerdict", name: str, path: Path | None, *, verbose: bool) -> str:
    if name == "json":
        from traceparity.verify.verdict_json import as_json

        return as_json(result)
    if name in ("junit", "github"):
        from traceparity.verify.verdict_ci import as_github, as_junit

        return as_junit(result) if name == "junit" else as_github(result)
    from traceparity.verify.verdict_text import as_text

    return as_text(result, colour=wants_colour(path), verbose=verbose, width=report_width(path))


def _summary(result: "RunVerdict") -> str:
    from traceparity.verify.verdict_ci import as_markdown

    return as_markdown(result)


def main() -> None:
    """Run ``tp-check``."""
    run_command("tp-check", check)


if __name__ == "__main__":
    main()
