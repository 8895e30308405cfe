"""The command ``tp-verify``."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceparity._version import __version__
from traceparity.cli.exits import Exit, run_command
from traceparity.cli.interruption import hear_interrupts, interruptible, leave
from traceparity.cli.outputs import (
    FORMATS,
    clear_outputs,
    parse_outputs,
    parse_trackers,
    report_option,
    track_result,
    wants_colour,
    write_reports,
)
from traceparity.cli.paths import PATH
from traceparity.tracefmt.errors import TraceparityError

if TYPE_CHECKING:
    from traceparity.verify.case import Case
    from traceparity.verify.result import CaseResult, VerifyResult


@click.command("tp-verify", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file")
@click.argument("names", nargs=-1, metavar="[CASE]...")
@click.option("--init", "kind", metavar="KIND", help="Begin a case file with the command after --.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="Where --init writes [parity.toml]."
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, help="Cases at once [1].")
@click.option("--work", type=PATH, help="Where they write [FILE.verify].")
@click.option("--update", is_flag=True, help="Record the archived references anew.")
@click.option("--zoom", is_flag=True, help="Run what diverges again, recorded more closely.")
@click.option("--list", "listing", is_flag=True, help="List the cases; run nothing.")
@click.option(
    "--format", "formats", multiple=True, metavar="FORMAT[=PATH]", help=f"{', '.join(FORMATS)}."
)
@report_option
@click.option("--allow-abstain", is_flag=True, help="Exit with 0 where nothing can be judged.")
@click.option("-v", "--verbose", is_flag=True, help="Leave nothing out of the text report.")
@click.version_option(__version__)
def verify(
    file: str,
    names: tuple[str, ...],
    kind: str | None,
    out: Path | None,
    jobs: int,
    work: Path | None,
    update: bool,
    zoom: bool,
    listing: bool,
    formats: tuple[str, ...],
    trackers: tuple[str, ...],
    allow_abstain: bool,
    verbose: bool,
) -> None:
    """Run the cases that FILE declares, each command in a fresh process, and judge them.

    CASE is the name of a case or a glob; without any, all cases are run. With --init, what stands
    after -- is a command to begin a case file with.

    Exit status: that of the worst case, in the order 2 ERROR, 1 FAIL, 3 ABSTAIN, 0 PASS; 130 where
    it is interrupted, with a report on the cases that were judged by then.
    """
    hear_interrupts()
    if kind is not None:
        _begin(kind, (file, *names), out or Path("parity.toml"))
        return
    if out is not None:
        raise click.UsageError("-o goes with --init; reports go to --format FORMAT=PATH")
    if listing and formats:
        raise click.UsageError("--list prints names and kinds alone; it goes without --format")
    path = Path(file)
    outputs = parse_outputs(formats, [path])
    logged = parse_trackers(trackers)
    clear_outputs(outputs)

    try:
        if listing:
            _list(path, names)
            return
        options = {"work": work, "jobs": jobs, "updating": update, "zooming": zoom}
        result = _run(path, names, lambda found: _report(found, outputs, verbose=verbose), options)
    except TraceparityError as error:
        click.echo(f"tp-verify: {error}", err=True)
        result = _not_judged(path, str(error))
        # There is nothing to print, but a file that was asked for says so too.
        outputs = [output for output in outputs if output[1]]
    _report(result, outputs, verbose=verbose)
    track_result(logged, "tp-verify", lambda: _render(result, "json", None, verbose=verbose))
    status = Exit[result.outcome.name]
    sys.exit(Exit.PASS if allow_abstain and status is Exit.ABSTAIN else status)


def _list(path: Path, names: tuple[str, ...]) -> None:
    from traceparity.verify.case_file import read_cases
    from traceparity.verify.runner import chosen

    for case in chosen(read_cases(path), names).cases:
        click.echo(f"{case.kind:13} {case.name}")


def _run(
    path: Path,
    names: tuple[str, ...],
    report: Callable[["VerifyResult"], None],
    options: dict[str, Any],
) -> "VerifyResult":
    """Run the cases that were chosen; where that is interrupted, report and do not come back."""
    from traceparity.verify.case_file import read_cases
    from traceparity.verify.runner import chosen, run_cases
    from traceparity.verify.work_folder import default_work

    cases = chosen(read_cases(path), names)
    options["work"] = options["work"] or default_work(path)
    with interruptible("tp-verify") as halt:
        result = run_cases(cases, stop=halt, told=_tell, **options)
        if result.interrupted:
            leave("tp-verify", lambda: report(result))
    return result


def _not_judged(path: Path, problem: str) -> "VerifyResult":
    from traceparity.verify.result import VerifyResult

    return VerifyResult(path, problem=problem)


def _report(
    result: "VerifyResult", outputs: list[tuple[str, Path | None]], *, verbose: bool
) -> None:
    write_reports(
        outputs,
        lambda name, place: _render(result, name, place, verbose=verbose),
        lambda: _summary(result),
    )


def _begin(kind: str, command: tuple[str, ...], file: Path) -> None:
    """Write the beginning of a case file, and say what is to be filled in."""
    from traceparity.verify.case import ROLES
    from traceparity.verify.starter import start_file
    from traceparity.verify.work_folder import default_work, held

    if kind not in ROLES:
        raise click.BadParameter(f"no kind {kind!r}; there are {', '.join(ROLES)}")
    work = default_work(file)
    with held(work), interruptible("tp-verify") as halt:
        try:
            blanks = start_file(kind, command, file, work, halt)
        except TraceparityError:
            if halt.is_set():
                sys.exit(Exit.INTERRUPTED)
            raise
    then = f"fill in {', '.join(blanks)}, then run" if blanks else "run"
    click.echo(f"{file}: a case of kind {kind}; {then}: tp-verify {file}")


def _tell(case: "Case", result: "CaseResult | None") -> None:
    """Say on stderr how it goes."""
    if result is None:
        line = f"running  {case.name}"
    else:
        line = f"{result.outcome.value:8} {case.name}  ({result.seconds:.1f} s)"
    # A terminal that is gone takes no result with it.
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def _render(result: "VerifyResult", name: str, path: Path | None, *, verbose: bool) -> str:
    if name == "json":
        from traceparity.verify.report_json import as_json

        return as_json(result)
    if name in ("junit", "github"):
        from traceparity.verify.report_ci import as_github, as_junit

        return as_junit(result) if name == "junit" else as_github(result)
    from traceparity.verify.report_text import as_text

    return as_text(result, colour=wants_colour(path), verbose=verbose)


def _summary(result: "VerifyResult") -> str:
    from traceparity.verify.report_ci import as_markdown

    return as_markdown(result)


def main() -> None:
    """Run ``tp-verify``."""
    run_command("tp-verify", verify)


if __name__ == "__main__":
    main()
