"""The command ``tp-show``."""

import contextlib
import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from traceparity._version import __version__
from traceparity.cli.exits import run_command
from traceparity.cli.locations import LOCATION
from traceparity.cli.outputs import wants_colour
from traceparity.tracefmt.location import Location

if TYPE_CHECKING:
    from traceparity.differ.show import Request
    from traceparity.tracefmt.reader import Trace
    from traceparity.tracefmt.verification import Verdict

_DAMAGED = 1


@click.command("tp-show", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("trace", type=LOCATION)
@click.option("--steps", "all_steps", is_flag=True, help="List all steps.")
@click.option("--sites", is_flag=True, help="List the sites.")
@click.option("--step", "numbers", type=int, multiple=True, metavar="N", help="One step.")
@click.option(
    "--site", "globs", multiple=True, metavar="GLOB", help="Sites like phase:component:field."
)
@click.option("--check", is_flag=True, help="Read the whole file and say what of it is lost.")
@click.option("--rank", type=int, metavar="N", help="One process of a run of several.")
@click.option(
    "--format", "format_name", type=click.Choice(["text", "json"]), default="text", help="As what."
)
@click.version_option(__version__)
def show(
    trace: Location,
    all_steps: bool,
    sites: bool,
    numbers: tuple[int, ...],
    globs: tuple[str, ...],
    check: bool,
    rank: int | None,
    format_name: str,
) -> None:
    """Show what TRACE holds: a .trace file, or a folder with one for each process.

    Without options: its header and its steps. --step shows what was seen in a step, --site a value
    over all steps, both together a value in that step. A GLOB without a colon is over components
    and fields.

    Exit status: 0; with --check 1 for a damaged or incomplete file; 2 ERROR.
    """
    from traceparity.differ.show import Request, open_ranks, verify_ranks

    request = Request(numbers, globs, sites, all_steps)
    if check and (all_steps or not request.is_overview):
        raise click.UsageError(
            "--check reads the whole file: it goes with --rank and --format only"
        )
    if sites and numbers:
        raise click.UsageError("--sites lists sites, --step observations: choose one")
    if check:
        verdicts = verify_ranks(trace, rank)
        _write(_check_lines(verdicts, format_name))
        sys.exit(0 if all(found.sound for found in verdicts.values()) else _DAMAGED)
    traces = open_ranks(trace, rank)
    with contextlib.ExitStack() as stack:
        for each in traces.values():
            stack.enter_context(each)
        _write(_lines(traces, request, format_name))


def _lines(traces: "dict[int, Trace]", request: "Request", format_name: str) -> Iterable[str]:
    if format_name == "json":
        from traceparity.differ import show_json

        return [show_json.report(traces, request)]
    from traceparity.differ import show_text

    return show_text.report(traces, request, show_text.painter(colour=wants_colour()))


def _check_lines(verdicts: "dict[int, Verdict]", format_name: str) -> Iterable[str]:
    if format_name == "json":
        from traceparity.differ import show_json

        return [show_json.check_report(verdicts)]
    from traceparity.differ import show_text

    return show_text.check_report(verdicts, show_text.painter(colour=wants_colour()))


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run ``tp-show``."""
    # Names come from the recorded program; a terminal that lacks a letter is no reason to fail.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    run_command("tp-show", show)


if __name__ == "__main__":
    main()
