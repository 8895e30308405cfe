"""The command ``tp-infer``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceparity._version import __version__
from traceparity.cli.exits import Exit, run_command
from traceparity.cli.paths import PATH

if TYPE_CHECKING:
    from traceparity.invariants.invariant import Invariant


@click.command("tp-infer", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("trace", type=PATH, nargs=-1, required=True)
@click.option("-o", "--output", type=PATH, help="Where to write invariants.")
@click.option("--merge", is_flag=True, help="The arguments are files of invariants: join them.")
@click.option("--explain", metavar="ID", help="Say what an invariant of a file rests on.")
@click.option(
    "--enable-relation", "enabled", multiple=True, metavar="NAME", help="Learn these only."
)
@click.option("--disable-relation", "disabled", multiple=True, metavar="NAME", help="Leave out.")
@click.option(
    "--precondition-sampling-threshold",
    "threshold",
    type=click.IntRange(min=2),
    default=5000,
    show_default=True,
    help="Kinds of examples of one question that are counted; of more nothing is learned.",
)
@click.option("--disable-precondition-sampling", is_flag=True, help="Count all kinds of examples.")
@click.version_option(__version__)
def infer(
    trace: tuple[Path, ...],
    output: Path | None,
    merge: bool,
    explain: str | None,
    enabled: tuple[str, ...],
    disabled: tuple[str, ...],
    threshold: int,
    disable_precondition_sampling: bool,
) -> None:
    """Learn what always holds in good runs, to check other runs with tp-check --invariants.

    TRACE is what tp-record wrote of a run that is known to be good: a .trace file, or a folder with
    one for each process. Several runs are better than one: what another seed breaks is not learned.

    With --merge and --explain, TRACE is a file that tp-infer wrote.

    Exit status: 0 where invariants were written, 2 where that is impossible.
    """
    from traceparity.invariants.families import families_of
    from traceparity.invariants.file import merged, read_invariants

    families = families_of(enabled, disabled)
    if explain is not None:
        click.echo(_explained([each for path in trace for each in read_invariants(path)], explain))
        sys.exit(Exit.PASS)
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if merge:
        found = merged([read_invariants(path) for path in trace])
        found = [each for each in found if each.relation in families]
    else:
        found = _learned(trace, families, None if disable_precondition_sampling else threshold)
    _write(output, found)


def _learned(
    traces: tuple[Path, ...], families: tuple[str, ...], most: int | None
) -> "list[Invariant]":
    from traceparity.invariants.inference import learn_from

    found, evidence = learn_from(traces, families, most_examples=most)
    for name in evidence.overfull:
        click.echo(
            f"tp-infer: {name}: more than {most:,} kinds of examples, so that nothing was learned; "
            "--disable-precondition-sampling counts all",
            err=True,
        )
    for name, reason in evidence.unseen.items():
        click.echo(f"tp-infer: nothing was learned of {name}: {reason}", err=True)
    return found


def _write(output: Path, found: "list[Invariant]") -> None:
    from traceparity.invariants.file import write_invariants

    write_invariants(output, found)
    click.echo(f"{len(found)} invariants in {output}", err=True)


def _explained(found: "list[Invariant]", name: str) -> str:
    from traceparity.invariants.explanation import explained

    return explained(found, name)


def main() -> None:
    """Run ``tp-infer``."""
    run_command("tp-infer", infer)


if __name__ == "__main__":
    main()
