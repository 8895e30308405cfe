"""A recording in progress: what all hook families share."""

from typing import Any

import torch

from traceparity.recorder.guard import Guard, inside_backward
from traceparity.recorder.location import user_location
from traceparity.recorder.naming import Names
from traceparity.recorder.observe import Observer, Summary
from traceparity.recorder.settings import Settings
from traceparity.recorder.shards import Unobservable
from traceparity.recorder.window import Window
from traceparity.tracefmt.records import Flag, Kind, Phase
from traceparity.tracefmt.rows import Rows
from traceparity.tracefmt.writer import Writer

UNWANTED = -1
"""Id of a site that the settings leave out."""
_BY_STEP = frozenset({Phase.STATE, Phase.GRADIENT, Phase.OPTIMIZER, Phase.SCHEDULER})


class Recording:
    """One recording: the writer, the names, the current window, and how a value becomes a row.

    Attributes:
        prelude: Rows seen outside of any window; they go to the next one that opens.
    """

    def __init__(self, writer: Writer, settings: Settings, guard: Guard, window: Window) -> None:
        self.writer = writer
        self.settings = settings
        self.guard = guard
        self.window = window
        self.names = Names()
        self.observer = Observer(writer, settings.capture)
        self.prelude = Rows()
        self._sites: dict[tuple[Phase, str, str], int] = {}

    @property
    def idle(self) -> bool:
        """Whether the current step is not recorded."""
        return not self.window.recording

    @property
    def phase(self) -> Phase:
        """Where in the step the program is."""
        window = self.window
        if inside_backward():
            return Phase.BACKWARD
        if window.in_step:
            return Phase.OPTIMIZER
        if not window.open:
            return Phase.STATE
        if window.updated:
            return Phase.SCHEDULER
        return Phase.GRADIENT if window.backward_done else Phase.FORWARD

    def site(self, phase: Phase, component: str, field: str, location: str | None = None) -> int:
        """The id of a site, `UNWANTED` where the settings leave it out.

        Args:
            phase: The phase.
            component: The component.
            field: The field.
            location: The source line that first led to it; None for the one that we are at.
        """
        key = (phase, component, field)
        found = self._sites.get(key)
        if found is None:
            found = UNWANTED
            if self.settings.wants_site(phase, component, field):
                line = user_location() if location is None else location
                found = self.writer.site(phase, component, field, line)
            self._sites[key] = found
        return found

    def forget(self, gone: set[str]) -> None:
        """Forget the sites of what is gone and will not come again under these names."""
        for key in [key for key in self._sites if belongs_to(key[1], gone)]:
            del self._sites[key]

    @property
    def rows(self) -> Rows:
        """Where rows go now."""
        return self.window.rows if self.window.open else self.prelude

    def tensor(self, phase: Phase, component: str, field: str, value: Any, flags: int = 0) -> None:
        """Record a tensor at a site; what has no readable values is noted as not observed."""
        site = self.site(phase, component, field)
        if site == UNWANTED:
            return
        try:
            summary = self.observer.summary(value)
        except Unobservable as what:
            self.writer.not_observed(component, f"{field} is {what}")
            return
        self.summary(phase, site, summary, flags)

    def summary(self, phase: Phase, site: int, summary: Summary, flags: int = 0) -> None:
        """Record a tensor whose summary was made before."""
        if site != UNWANTED:
            call, microbatch = self._place(phase, site)
            self.observer.row(self.rows, site, call, microbatch, flags, summary)

    def plain(
        self, phase: Phase, component: str, field: str, value: Any, flags: int = 0,
        kind: Kind = Kind.SCALAR,
    ) -> None:  # fmt: skip
        """Record a plain value at a site."""
        site = self.site(phase, component, field)
        if site != UNWANTED:
            call, microbatch = self._place(phase, site)
            self.observer.plain(self.rows, site, call, microbatch, flags, value, kind)

    def value(self, phase: Phase, component: str, field: str, value: Any, flags: int = 0) -> None:
        """Record a tensor or a plain value, whichever it is."""
        if isinstance(value, torch.Tensor):
            self.tensor(phase, component, field, value, flags)
        else:
            self.plain(phase, component, field, plain_value(value), flags)

    def settle(self) -> None:
        """Fetch what rows still lack of tensors on a device."""
        lost = self.observer.pending.settle(self.window.rows)
        if lost:
            self.writer.not_observed("", f"{lost} tensors on a device were held for too long")

    def marker(self, component: str, field: str, value: Any) -> None:
        """Record that something happened, as context of the state."""
        self.plain(Phase.STATE, component, field, value, Flag.CONTEXT, Kind.MARKER)

    def _place(self, phase: Phase, site: int) -> tuple[int, int]:
        if phase in _BY_STEP:
            return self.window.step_call(site), 0
        return self.window.call(site), self.window.microbatch


def belongs_to(component: str, paths: set[str]) -> bool:
    """Whether a component is one of the modules or optimizers, or a part of one."""
    if component in paths or component.rpartition(".")[0] in paths:
        return True
    # `optimizer[0] group[1]`
    owner, space, _ = component.partition(" ")
    return bool(space) and owner in paths


def plain_value(value: Any) -> Any:
    """A value as plain data; what is none becomes its type's name, which is stable over runs."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if -(1 << 63) <= value < 1 << 64 else str(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return plain_value(value.item())
    return f"<{type(value).__name__}>"


def one_number(value: Any) -> Any:
    """A tensor of one element as its number; any other value as it is."""
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def is_plain(value: Any) -> bool:
    """Whether a value is a plain scalar of the kind that modules take as arguments."""
    return value is None or isinstance(value, bool | int | float | str)
