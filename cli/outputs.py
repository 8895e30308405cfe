"""Where reports go: the formats that were asked for, to stdout or to files."""

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import click

FORMATS = ("text", "json", "junit", "github")
_COMMAND = re.compile(r"^(\s*[:#])([:#])", re.MULTILINE)
"""A line that GitHub's runner would obey, as ``::error::``, though a program has written it."""
TRACKERS = ("wandb", "mlflow", "tensorboard")

report_option = click.option(
    "--report",
    "trackers",
    multiple=True,
    metavar="LIBRARY[=PLACE]",
    help=f"Log the result, too: {', '.join(TRACKERS)}.",
)
"""The option of all judging commands that says where results are logged besides."""


def parse_output(text: str) -> tuple[str, Path | None]:
    """Format and path from ``FORMAT[=PATH]``; no path means stdout.

    Raises:
        BadParameter: There is no such format.
    """
    name, _, path = text.partition("=")
    if name not in FORMATS:
        raise click.BadParameter(f"no format {name!r}; there are {', '.join(FORMATS)}")
    return name, Path(path) if path else None


def parse_outputs(
    texts: Sequence[str], inputs: Sequence[object] = ()
) -> list[tuple[str, Path | None]]:
    """Format and path of each report that was asked for; the text report where none was.

    Args:
        texts: ``FORMAT[=PATH]`` each.
        inputs: What is to be judged; a report must not be written over it.

    Raises:
        BadParameter: There is no such format, or a path would be written twice.
    """
    outputs = [parse_output(text) for text in texts] or [("text", None)]
    taken = {each.resolve(): "what is judged" for each in inputs if isinstance(each, Path)}
    for name, path in outputs:
        if path is None or not _is_replaced(path):
            continue
        if before := taken.get(path.resolve()):
            raise click.BadParameter(f"{name}={path} would be written over {before}")
        taken[path.resolve()] = f"the report {name}={path}"
    return outputs


def clear_outputs(outputs: Sequence[tuple[str, Path | None]]) -> None:
    """Remove the reports of an earlier run: whatever ends this one, they are not taken for its."""
    for _, path in outputs:
        if path is not None and path.is_file():
            # One that cannot be removed can mostly not be written either, which is told then.
            with contextlib.suppress(OSError):
                path.resolve().unlink()


def _is_replaced(path: Path) -> bool:
    """Whether what is written there takes the place of what was; not so for a pipe or a device."""
    return path.is_file() or not path.exists()


def wants_colour(path: Path | None = None, stream: TextIO | None = None) -> bool:
    """Whether a report is read on a terminal by someone who has not refused colour."""
    return path is None and (stream or sys.stdout).isatty() and "NO_COLOR" not in os.environ


def report_width(path: Path | None = None) -> int:
    """Columns of a report: those of the terminal that it goes to, 80 at most and elsewhere."""
    if path is not None or not sys.stdout.isatty():
        return 80
    return max(40, min(80, shutil.get_terminal_size().columns))


def write_report(text: str, path: Path | None) -> None:
    """Write a report to stdout or to a file.

    Raises:
        ClickException: The file cannot be written.
    """
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        _write_whole(text, path)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error


def _write_whole(text: str, path: Path) -> None:
    """Write a file that is there as a whole or as it was before."""
    target = path.resolve()
    if target.is_file() or not target.exists():
        part = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(target)
        except OSError:
            # A folder that nobody may write to, or a file that is mounted: it is written in place.
            part.unlink(missing_ok=True)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        else:
            return
    path.write_text(text, encoding="utf-8")


def write_reports(
    outputs: Sequence[tuple[str, Path | None]],
    render: Callable[[str, Path | None], str],
    summary: Callable[[], str],
) -> None:
    """Write all reports that were asked for.

    Args:
        outputs: Formats, each with its path.
        render: The text of a format for a path.
        summary: The same in Markdown, for the page of a workflow's run, with ``github``.

    Raises:
        ClickException: One cannot be written.
    """
    # Files first: whoever reads our stdout may have gone away.
    for name, path in sorted(outputs, key=lambda output: output[1] is None):
        text = render(name, path)
        if name == "text" and path is None and "GITHUB_ACTIONS" in os.environ:
            text = _COMMAND.sub(r"\1 \2", text)
        write_report(text, path)
    if any(name == "github" for name, _ in outputs):
        write_summary(summary())


def write_summary(text: str) -> None:
    """Add a summary in Markdown to the page of the workflow's run, where GitHub Actions runs us.

    Raises:
        ClickException: It cannot be written.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error


def parse_trackers(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Library and place from each ``LIBRARY[=PLACE]``.

    Raises:
        BadParameter: There is no such library.
        TrackerError: It is not installed.
    """
    wanted = []
    for text in texts:
        name, _, place = text.partition("=")
        if name not in TRACKERS:
            raise click.BadParameter(f"no library {name!r}; there are {', '.join(TRACKERS)}")
        wanted.append((name, place))
    if wanted:
        from traceparity.verify.trackers import check_trackers

        check_trackers(wanted)
    return wanted


def track_result(
    trackers: Sequence[tuple[str, str]], command: str, as_json: Callable[[], str]
) -> None:
    """Log a result by the libraries that were asked for; one that fails is a line on stderr."""
    if not trackers:
        return
    from traceparity.verify.trackers import track, tracked

    for problem in track(trackers, tracked(command, as_json())):
        click.echo(f"{command}: {problem}", err=True)
