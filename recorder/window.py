"""The window: which step, micro-batch and call an observation belongs to.

States of a window, and what moves it on:

    closed  --training forward or backward-->  open     (the state of the step is recorded)
    open    --optimizer step-->                updated  (what was seen so far goes to the file)
    updated --training forward or backward-->  closed, then open as the next step
    updated --scheduler step, evaluation-->    updated  (they belong to the step that they follow)

A forward or backward inside an optimizer's step (a closure) moves nothing.
"""

from collections.abc import Callable

from traceparity.recorder.settings import Settings
from traceparity.tracefmt.rows import Rows

SPILL = 1 << 24
"""Bytes of rows after which a step is written in a further part."""


class Window:
    """The current window.

    Attributes:
        number: The step.
        open: Whether training activity was seen since the last window closed.
        updated: Whether an optimizer has stepped in it.
        recording: Whether the settings want this step.
        microbatch: Number of the forward/backward pass.
        rows: What was seen and not yet written.
        gap: Whether the step before this one was left out of the recording.
    """

    def __init__(
        self, settings: Settings, on_open: Callable[[], None], on_part: Callable[[bool, bool], None]
    ) -> None:
        """Start closed, before step 0.

        Args:
            settings: Which steps to record.
            on_open: Called when a window opens.
            on_part: Called to write ``rows``; told whether the window is the tail, and whether
                the step is whole even if nothing more of it follows.
        """
        self.number = 0
        self.open = False
        self.updated = False
        self.recording = settings.wants_step(0)
        self.microbatch = 0
        self.rows = Rows()
        self.gap = False
        self.in_step = 0
        self._settings = settings
        self._on_open = on_open
        self._on_part = on_part
        self._backward_done = False
        self._calls: dict[int, int] = {}
        self._step_calls: dict[int, int] = {}

    @property
    def backward_done(self) -> bool:
        """Whether a backward has begun since the last training forward."""
        return self._backward_done

    @property
    def awaits_update(self) -> bool:
        """Whether a backward pass was seen in the open window and no update since."""
        return self.open and not self.updated and self._backward_done

    @property
    def micro_batches(self) -> int:
        """How many forward/backward passes the window has had."""
        return self.microbatch + 1

    def call(self, site: int) -> int:
        """The how-manyth time the site is seen in this micro-batch."""
        number = self._calls.get(site, 0)
        self._calls[site] = number + 1
        return number

    def step_call(self, site: int) -> int:
        """The how-manyth time the site is seen in this step."""
        number = self._step_calls.get(site, 0)
        self._step_calls[site] = number + 1
        return number

    def forward(self) -> None:
        """A training forward begins."""
        self.advance()
        self.spill()
        if self._backward_done and not self.in_step:
            self.microbatch += 1
            self._backward_done = False
            self._calls.clear()

    def backward(self) -> None:
        """A backward begins."""
        self.advance()
        self._backward_done = True

    def advance(self) -> None:
        """Training activity: close an updated window, open a closed one."""
        if self.in_step:
            return
        if self.updated:
            self.close()
        if not self.open:
            self.open = True
            self._on_open()

    def update(self) -> None:
        """An optimizer has stepped: what was seen so far is written at once."""
        self.updated = True
        self.flush()

    def spill(self) -> None:
        """Write a part when much has gathered."""
        if self.rows.size > SPILL:
            self.flush(last=False)

    def flush(self, *, tail: bool = False, last: bool = True) -> None:
        """Write what has gathered as a part of the step."""
        if self.recording and len(self.rows):
            self._on_part(tail, last)
        self.rows.clear()

    def close(self) -> None:
        """The window ends; the next step begins when training goes on."""
        self.flush()
        self.gap = not self.recording
        self.number += 1
        self.open = self.updated = self._backward_done = False
        self.recording = self._settings.wants_step(self.number)
        self.microbatch = 0
        self._calls.clear()
        self._step_calls.clear()
