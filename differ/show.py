"""Showing a trace: which of its steps, sites and observations somebody asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceparity.differ.observation import Observation, observe
from traceparity.tracefmt.errors import TraceparityError
from traceparity.tracefmt.globs import glob_matches
from traceparity.tracefmt.location import Location
from traceparity.tracefmt.reader import Trace, open_run, open_trace, run_files
from traceparity.tracefmt.records import Flag, Phase, Site, SiteEntry, StepEntry
from traceparity.tracefmt.verification import Verdict, verify

_LONGEST_VALUE = 512
"""Bytes of a tensor that are read to be shown; who wants more of it wants a program."""
_CONTEXT = int(Flag.CONTEXT)
"""As a plain number: `&` of flags is slow, and a step may have a million rows."""


class ShowError(TraceparityError):
    """What was asked for is not in the trace."""


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked for; nothing of it: an overview.

    Attributes:
        steps: Numbers of the steps whose observations are wanted.
        globs: Which sites are wanted; none: all.
        sites: Whether the sites are wanted rather than what was seen there.
        all_steps: Whether an overview leaves no step out.
    """

    steps: tuple[int, ...] = ()
    globs: tuple[str, ...] = ()
    sites: bool = False
    all_steps: bool = False

    @property
    def is_overview(self) -> bool:
        """Whether neither sites nor observations are wanted."""
        return not (self.steps or self.globs or self.sites)


@dataclass(frozen=True, slots=True)
class Shown:
    """One observation with its place.

    Attributes:
        site: Where it was seen.
        location: Source line that first led there; empty where unknown.
        call: The how-manyth time the site was seen in its micro-batch.
        microbatch: Number of the micro-batch.
        seen: The value.
    """

    site: Site
    location: str
    call: int
    microbatch: int
    seen: Observation

    @property
    def is_context(self) -> bool:
        """Whether it explains but never decides."""
        return bool(int(self.seen.flags) & _CONTEXT)


def open_ranks(path: Location, rank: int | None) -> dict[int, Trace]:
    """The traces to show by rank: all of a run, or one.

    Raises:
        ShowError: The run has no such rank.
        TraceError: A trace cannot be read.
    """
    if rank is None:
        return open_run(path)
    return {rank: open_trace(_ranks(path, rank)[rank])}


def verify_ranks(path: Location, rank: int | None) -> dict[int, Verdict]:
    """How sound the files of a run are, by rank.

    Raises:
        ShowError: The run has no such rank.
        TraceError: A file cannot be read, or is no trace.
    """
    return {number: verify(file) for number, file in sorted(_ranks(path, rank).items())}


def _ranks(path: Location, rank: int | None) -> dict[int, Location]:
    files = run_files(path)
    if rank is None:
        return files
    if rank not in files:
        raise ShowError(f"{path}: there is no rank {rank}; it has {_some(sorted(files))}")
    return {rank: files[rank]}


def find_step(trace: Trace, number: int) -> StepEntry:
    """A step by its number, the unfinished one included.

    Raises:
        ShowError: There is none.
    """
    steps = [*trace.steps, *([trace.unfinished] if trace.unfinished else [])]
    for step in steps:
        if step.number == number:
            return step
    if number in trace.lost:
        raise ShowError(f"{trace.path}: step {number} is lost; see tp-show --check")
    there = _some([step.number for step in steps]) if steps else "none"
    raise ShowError(f"{trace.path}: there is no step {number}; it has {there}")


def _some(numbers: Sequence[int]) -> str:
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown}, ... {numbers[-1]}" if len(numbers) > 8 else shown


def sites_of(trace: Trace, globs: Sequence[str]) -> list[SiteEntry]:
    """The sites that match one of the globs, all where there is no glob; by phase.

    Raises:
        ShowError: None matches.
    """
    wanted = _wanted(trace, globs)
    entries = (entry for entry, is_wanted in zip(trace.sites, wanted, strict=True) if is_wanted)
    return sorted(entries, key=lambda entry: entry.site.phase)


def observations(trace: Trace, number: int, globs: Sequence[str]) -> Iterator[Shown]:
    """The observations of a step at the matching sites, in execution order.

    Raises:
        ShowError: No site matches.
        TraceFormatError: The step is damaged.
    """
    wanted = np.array(_wanted(trace, globs), np.bool_)
    for columns in trace.parts(number):
        rows: npt.NDArray[Any] = np.flatnonzero(wanted[columns.site])
        for row in rows.tolist():
            entry = trace.sites[columns.site[row]]
            yield Shown(
                site=entry.site,
                location=entry.location,
                call=int(columns.call[row]),
                microbatch=int(columns.microbatch[row]),
                seen=observe(trace, columns, row, longest=_LONGEST_VALUE),
            )


def _wanted(trace: Trace, globs: Sequence[str]) -> list[bool]:
    wanted = [
        not globs or any(_matches(glob, entry.site) for glob in globs) for entry in trace.sites
    ]
    if globs and not any(wanted):
        raise ShowError(f"{trace.path}: no site matches {' or '.join(globs)}; see tp-show --sites")
    return wanted


def _matches(glob: str, site: Site) -> bool:
    """A glob over the whole site, or, without a colon in it, over a component or a field."""
    names = (str(site),) if ":" in glob else (str(site), site.component, site.field)
    return any(glob_matches(glob, name) for name in names)


def observation_count(trace: Trace) -> int:
    """Rows of all steps."""
    return sum(sum(step.observations) for step in trace.steps)


def phase_counts(step: StepEntry) -> dict[str, int]:
    """Rows of a step in each phase."""
    return {phase.label: step.observations[phase] for phase in Phase}
