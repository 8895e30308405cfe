"""Exit statuses of all commands, and how errors leave those that read traces."""

import os
import signal
import sys
from enum import IntEnum

import click

from traceparity.tracefmt.errors import TraceparityError

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
"""What asks a command to end; Ctrl-C alone is heard by those that start nothing."""


class Exit(IntEnum):
    """What a judging command says with its exit status."""

    PASS = 0
    FAIL = 1
    ERROR = 2
    ABSTAIN = 3
    INTERRUPTED = 130


def run_command(name: str, command: click.Command) -> None:
    """Run a command that reads traces, and exit as its users expect.

    Left to click, a crash or an interrupt would exit 1, which means FAIL.
    """
    if sys.stdout is None:
        # Started with a closed stdout: the exit status says it all.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open as long as the process
    try:
        command(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(Exit.ERROR)
    except TraceparityError as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(Exit.ERROR)
    except (click.Abort, KeyboardInterrupt):
        # Once more while Python ends would make it end by the signal.
        for number in INTERRUPTS:
            signal.signal(number, signal.SIG_IGN)
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader went away, as `| head` does; Python must not complain when it exits.
        _drop_output()
        sys.exit(Exit.ERROR)
    except OSError as error:
        # Reading has errors of its own, so this is the report that has nowhere to go.
        click.echo(f"{name}: cannot write the report: {error.strerror or error}", err=True)
        _drop_output()
        sys.exit(Exit.ERROR)
    except Exception as error:
        click.echo(f"{name}: internal error, please report it: {error!r}", err=True)
        if os.environ.get("TRACEPARITY_DEBUG"):
            raise
        sys.exit(Exit.ERROR)


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
