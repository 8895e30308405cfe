"""``tp-record``: run a training command and record it."""

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceparity import _version
from traceparity.cli.exits import Exit
from traceparity.cli.locations import LOCATION
from traceparity.cli.outputs import wants_colour
from traceparity.cli.paths import PATH
from traceparity.recorder.launch import LaunchError, Order, default_out, run
from traceparity.recorder.settings import LEVELS, Settings, settings_from, settings_from_file
from traceparity.tracefmt.errors import TraceparityError
from traceparity.tracefmt.location import Location

if TYPE_CHECKING:
    from traceparity.verify.live import Live

FAILED = 125
"""Exit status when recording itself cannot begin; a program's own status always wins."""
DIVERGED = 121
"""Exit status of a run that was found at fault by what it was judged by."""
UNJUDGED = 122
"""Exit status of a run that ended well and could not be judged."""


@click.command(
    context_settings={
        "allow_interspersed_args": False,
        "help_option_names": ["-h", "--help"],
    },
    epilog="The exit status is the program's own; 125 when recording cannot begin, 126 and 127"
    " when the program cannot be run or found. With --against and --check 121 for a run that parts"
    " from the reference or breaks what it is checked by, 122 for one that ended well and could not"
    " be judged.",
)
@click.option("-o", "--out", type=PATH, help="Trace to write [<script>.trace].")
@click.option("--overwrite", is_flag=True, help="Replace a trace that exists.")
@click.option("--capture", type=click.Choice(LEVELS), help="What to keep of tensors [sketch].")
@click.option("--steps", metavar="RANGES", help="Steps to record, e.g. 0:10,500:510.")
@click.option("--every", type=click.IntRange(min=1), metavar="N", help="Record each N-th step.")
@click.option("--phases", metavar="LIST", help="Phases to record, e.g. gradient,optimizer.")
@click.option("--include", multiple=True, metavar="GLOB", help="Sites to record (repeatable).")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Sites to leave out (repeatable).")
@click.option(
    "--operators",
    multiple=True,
    metavar="MODULE",
    help="Record each operator inside a module or an optimizer, too (repeatable).",
)
@click.option(
    "--watch",
    multiple=True,
    metavar="FUNCTION",
    help="Record calls of package.module.function or package.module.Class.method (repeatable).",
)
@click.option("--config", type=PATH, help="Settings file [pyproject.toml].")
@click.option(
    "--eager", is_flag=True, help="Have torch.compile compile nothing, to see inside of it."
)
@click.option("--rank", type=click.IntRange(min=0), help="Rank, where no launcher says it.")
@click.option(
    "--against",
    type=LOCATION,
    metavar="TRACE",
    help="Compare each step with an archived trace; stop where the run parts from it.",
)
@click.option(
    "--policy",
    type=PATH,
    metavar="FILE|PRESET",
    help="The relation to the archived trace.",
)
@click.option(
    "--check",
    metavar="FILE|builtin",
    help="Check each step by what tp-infer learned, or by the built-in laws.",
)
@click.option("--only-needed", is_flag=True, help="With --check: record what it needs only.")
@click.option("--fail-fast", is_flag=True, help="With --check: stop at the first violation.")
@click.option(
    "--stop-after",
    type=click.IntRange(min=0),
    metavar="N",
    help="Go on for N steps after the first divergence [0].",
)
@click.option("-m", "module", is_flag=True, help="TARGET is a module, as for python -m.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr how it went.")
@click.version_option(_version.__version__, prog_name="tp-record")
@click.argument("target", nargs=-1, required=True, type=click.UNPROCESSED)
def record(
    target: tuple[str, ...],
    out: Path | None,
    overwrite: bool,
    config: Path | None,
    eager: bool,
    rank: int | None,
    module: bool,
    verbose: bool,
    against: Location | None,
    policy: Path | None,
    stop_after: int | None,
    check: str | None,
    fail_fast: bool,
    only_needed: bool,
    **options: object,
) -> None:
    """Run TARGET and record its training to a trace file.

    TARGET is a script with its arguments, "-m module", or any command that starts Python:

    \b
        tp-record -o a.trace -- train.py --lr 3e-4
        tp-record -o a.trace -- torchrun --nproc-per-node 2 train.py
    """  # noqa: D301 - click wants the character, not the escape
    if module:
        target = ("-m", *target)
    settings = _settings(config, options)
    if importlib.util.find_spec("torch") is None:
        raise TraceparityError("torch is not installed here; pip install 'traceparity[torch]'")
    order = Order(
        target=target,
        out=out or default_out(target),
        settings=settings,
        overwrite=overwrite,
        rank=rank,
        eager=eager,
        verbose=verbose or _is_terminal(),
    )
    if check is not None and against is not None:
        raise click.UsageError("--check and --against exclude each other")
    if (fail_fast or only_needed) and check is None:
        raise click.UsageError("--fail-fast and --only-needed go with --check")
    if check is not None:
        sys.exit(_run_checked(order, check, fail_fast=fail_fast, only_needed=only_needed))
    if against is None:
        if policy is not None or stop_after is not None:
            raise click.UsageError("--policy and --stop-after go with --against")
        sys.exit(run(order))
    sys.exit(_run_against(order, against, policy, stop_after or 0))


def _run_against(
    order: Order, reference: Location, policy_file: Path | None, stop_after: int
) -> int:
    from traceparity.differ.policy_options import with_options
    from traceparity.differ.report_text import as_text
    from traceparity.verify.live import Live
    from traceparity.verify.live_diff import Against

    if isinstance(reference, Path) and reference.resolve() == order.out.resolve():
        raise TraceparityError(f"{reference} cannot be both the reference and the output")
    against = Against(reference, with_options(policy_file))
    live = Live(order.out, [against.judge_of], stop_after=stop_after)
    return _run_live(order, live, against.conclude, as_text)


def _run_checked(order: Order, by: str, *, fail_fast: bool, only_needed: bool) -> int:
    from traceparity.verify.live import Live
    from traceparity.verify.live_check import LiveCheck
    from traceparity.verify.verdict_text import as_text

    check = LiveCheck(by)
    watch = tuple(dict.fromkeys((*order.settings.watch, *check.watched)))
    settings = replace(order.settings, watch=watch)
    if only_needed:
        phases = tuple(phase.label for phase in check.phases)
        settings = replace(settings, phases=phases)
    order = replace(order, settings=settings)
    live = Live(order.out, [check.judge_of], stop_after=0 if fail_fast else None)
    return _run_live(order, live, check.conclude, as_text)


def _run_live(
    order: Order, live: "Live", conclude: Callable[[Path], Any], as_text: Callable[..., str]
) -> int:
    """Run a program whose steps are judged while it goes on; the exit status of tp-record."""
    from traceparity.differ.result import Outcome

    status = run(order, live.watch)
    live.finish()
    outcome = Outcome.ABSTAIN
    if order.out.exists():
        try:
            result = conclude(order.out)
        except TraceparityError as error:
            click.echo(f"tp-record: {error}", err=True)
        else:
            outcome = result.outcome
            report = as_text(result, colour=wants_colour(stream=sys.stderr))
            click.echo(report, err=True, nl=False)
    if live.findings or outcome is Outcome.FAIL:
        return DIVERGED
    return status or (Exit.PASS if outcome is Outcome.PASS else UNJUDGED)


def _settings(config: Path | None, options: dict[str, object]) -> Settings:
    base = Settings()
    if config is not None:
        base = settings_from_file(config)
    elif Path("pyproject.toml").is_file():
        base = settings_from_file(Path("pyproject.toml"))
    given = {key: value for key, value in options.items() if value not in (None, ())}
    return settings_from(given, "command line", base)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def main() -> None:
    """Run ``tp-record``; whatever goes wrong before the program starts exits 125 to 127."""
    try:
        record(standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(FAILED)
    except LaunchError as error:
        click.echo(f"tp-record: {error}", err=True)
        sys.exit(error.status)
    except TraceparityError as error:
        click.echo(f"tp-record: {error}", err=True)
        sys.exit(FAILED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"tp-record: {where}{error.strerror or error}", err=True)
        sys.exit(FAILED)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        click.echo(f"tp-record: internal error, please report it: {error!r}", err=True)
        if os.environ.get("TRACEPARITY_DEBUG"):
            raise
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
