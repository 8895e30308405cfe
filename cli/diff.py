"""The command ``tp-diff``."""

import sys
from collections.abc import Sequence
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
    from traceparity.differ.result import DiffResult


@click.command("tp-diff", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("reference", type=LOCATION, required=False, metavar="REFERENCE")
@click.argument("target", type=LOCATION, nargs=-1, metavar="TARGET...")
@click.option(
    "--policy",
    "policy_file",
    type=PATH,
    metavar="FILE|PRESET",
    help="A policy file; or exact, close, resume, accumulation, ddp, refactor.",
)
@click.option("--print-policy", is_flag=True, help="Print the effective policy; compare nothing.")
@click.option(
    "--align",
    type=click.Choice(["start", "resume", "accumulation"]),
    help="How steps line up (default: start).",
)
@click.option("--step-offset", metavar="N|auto", help="Reference step of the target's step 0.")
@click.option("--microbatches", metavar="N:M", help="Micro-batches of an update on both sides.")
@click.option(
    "--loss",
    type=click.Choice(["sum", "mean", "weighted", "skip"]),
    help="How the losses of micro-batches combine (default: sum).",
)
@click.option(
    "--ranks",
    type=click.Choice(["one_to_one", "replicated", "sharded"]),
    help="How the processes of both runs answer each other (default: one_to_one).",
)
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="A name that changed.")
@click.option(
    "--propose-renames", is_flag=True, help="Print a table of names that changed; compare nothing."
)
@click.option("--phases", metavar="LIST", help="Compare these phases only.")
@click.option(
    "--unmatched", type=click.Choice(["fail", "allow"]), help="Sites that one side alone has."
)
@click.option("--ignore", multiple=True, metavar="GLOB", help="Leave sites out.")
@click.option("--repeat", type=LOCATION, metavar="REF2", help="A second reference run.")
@click.option(
    "--format", "formats", multiple=True, metavar="FORMAT[=PATH]", help=f"{', '.join(FORMATS)}."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes for a run of many ranks (default: one a core where that pays).",
)
@click.option("--scheduler", metavar="URL", help="Compare ranks on this Dask cluster: tcp://...")
@report_option
@click.option("--allow-abstain", is_flag=True, help="Exit with 0 where nothing can be judged.")
@click.option("-v", "--verbose", is_flag=True, help="Leave nothing out of the text report.")
@click.version_option(__version__)
def diff(
    reference: Location | None,
    target: tuple[Location, ...],
    formats: tuple[str, ...],
    trackers: tuple[str, ...],
    repeat: Location | None,
    allow_abstain: bool,
    verbose: bool,
    print_policy: bool,
    propose_renames: bool,
    jobs: int | None,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Find the first divergence of TARGET from REFERENCE.

    Both are traces that tp-record wrote: a .trace file, or a folder with one for each process. A
    run that stopped and went on may be given in several segments.

    Exit status: 0 PASS, 1 FAIL, 2 ERROR, 3 ABSTAIN.
    """
    from traceparity.differ.diff import diff_runs, error_result
    from traceparity.differ.policy import Policy
    from traceparity.differ.workers import Workers

    if print_policy:
        _print_policy(options)
        return
    if reference is None or not target:
        raise click.UsageError("Missing argument 'REFERENCE' or 'TARGET'.")
    if propose_renames:
        _propose_renames(reference, target)
        return
    outputs, logged = parse_outputs(formats, (reference, *target)), parse_trackers(trackers)
    clear_outputs(outputs)
    policy: Policy = Policy()
    try:
        policy = _policy(options)
        workers = Workers(jobs, scheduler or "")
        result = diff_runs(reference, target, policy, repeat, workers=workers)
    except TraceparityError as error:
        click.echo(f"tp-diff: {error}", err=True)
        result = error_result(str(error), reference, target, policy)
        # There is nothing to print, but a file that was asked for says so too.
        outputs = [output for output in outputs if output[1]]
    write_reports(
        outputs,
        lambda name, path: _render(result, name, path, verbose=verbose),
        lambda: _summary(result),
    )
    track_result(logged, "tp-diff", lambda: _render(result, "json", None, verbose=verbose))
    status = Exit[result.outcome.name]
    sys.exit(Exit.PASS if allow_abstain and status is Exit.ABSTAIN else status)


def _policy(options: dict[str, Any]) -> "Policy":
    from traceparity.differ.policy_options import with_options

    return with_options(
        options["policy_file"],
        align=options["align"],
        step_offset=options["step_offset"],
        microbatches=options["microbatches"],
        loss=options["loss"],
        ranks=options["ranks"],
        rename=options["rename"],
        phases=options["phases"],
        unmatched=options["unmatched"],
        ignore=options["ignore"],
    )


def _print_policy(options: dict[str, Any]) -> None:
    from traceparity.differ.policy_text import policy_text

    click.echo(policy_text(_policy(options)), nl=False)


def _propose_renames(reference: Location, target: Sequence[Location]) -> None:
    from traceparity.differ.errors import AlignmentError
    from traceparity.differ.propose_renames import propose_renames

    try:
        click.echo(propose_renames(reference, target[0]), nl=False)
    except AlignmentError as error:
        click.echo(f"tp-diff: {error}", err=True)
        sys.exit(Exit.ABSTAIN)


def _render(result: "DiffResult", name: str, path: Path | None, *, verbose: bool) -> str:
    if name == "json":
        from traceparity.differ.report_json import as_json

        return as_json(result)
    if name in ("junit", "github"):
        from traceparity.differ.report_ci import as_github, as_junit

        return as_junit(result) if name == "junit" else as_github(result)
    from traceparity.differ.report_text import as_text

    return as_text(result, colour=wants_colour(path), verbose=verbose, width=report_width(path))


def _summary(result: "DiffResult") -> str:
    from traceparity.differ.report_ci import as_markdown

    return as_markdown(result)


def main() -> None:
    """Run ``tp-diff``."""
    run_command("tp-diff", diff)


if __name__ == "__main__":
    main()
