"""The place of an operator: the part of a step that it belongs to, and the line that led to it.

What backward runs is told by the autograd node that is under way. Nodes are numbered as they are
made, in each thread, so the number that the next one will get, seen at each operator of the forward
pass, tells which operator made which node. Nothing is attached to a graph.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from traceparity.recorder.guard import inside_backward
from traceparity.recorder.location import user_location
from traceparity.recorder.recording import Recording
from traceparity.tracefmt.records import Phase

PROGRAM = "program"
"""Component of what runs outside of modules: the loss, clipping."""
Running = Callable[[], str | None]
"""The path of the module whose call in a recorded step is the innermost one of this thread,
`PROGRAM` where no call is under way, and None in a call that is not recorded."""

_C: Any = torch._C


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator belongs.

    Attributes:
        phase: The phase.
        component: A module, the parameter whose gradient is accumulated, an optimizer, `PROGRAM`.
        location: The source line that says most about it.
        came_from: What led to it, for people; None where the line is all there is to say.
    """

    phase: Phase
    component: str
    location: str
    came_from: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Origin:
    """The operator that made an autograd node; in two threads a number may stand for two."""

    thread: int
    component: str
    location: str


@dataclass(frozen=True, slots=True)
class _Update:
    """An optimizer's step under way, and whether backward runs it."""

    optimizer: str
    called: str
    in_pass: bool


class _OfThread(threading.local):
    """What is followed in each thread."""

    def __init__(self) -> None:
        self.next_node = 0
        self.wrote = False
        self.before: _Origin | None = None
        self.updates: list[_Update] = []


class Places:
    """Tells the place of each operator as it is about to be called."""

    def __init__(self, recording: Recording, running: Running) -> None:
        self._recording = recording
        self._running = running
        self._origins: dict[int, _Origin | None] = {}
        self._here = _OfThread()
        # Of all threads: an engine's thread has no line of the program on its stack.
        self._pass_called = ""
        self._passed = -1

    def watch_begins(self) -> None:
        """This thread's operators are seen from now on."""
        self._here.next_node = _C._autograd._get_sequence_nr()
        self._here.before = None

    def forget(self) -> None:
        """A step began: of graphs that are older no line is told."""
        self._origins.clear()
        self._passed = -1
        self._here.updates.clear()

    def pass_begins(self) -> None:
        """A backward pass begins, called from the line that the program is at."""
        self._pass_called = user_location()

    def pass_ends(self) -> None:
        """A backward pass has ended."""
        self._passed = self._recording.window.microbatch

    def update_begins(self, optimizer: str) -> None:
        """An optimizer's step begins, called from the line that the program is at."""
        self._here.updates.append(_Update(optimizer, user_location(), inside_backward()))

    def update_ends(self, optimizer: str) -> None:
        """An optimizer's step has ended, and with it those inside of which torch told no end."""
        names = [update.optimizer for update in self._here.updates]
        if optimizer in names:
            del self._here.updates[len(names) - 1 - names[::-1].index(optimizer) :]

    @property
    def updating(self) -> bool:
        """Whether a step that is followed is under way in this thread."""
        return bool(self._here.updates)

    def of_next(self, *, writes: bool) -> Place | None:
        """The place of the operator that this thread is about to call; None where it has none.

        Args:
            writes: Whether the operator writes to one of its arguments.
        """
        place = self._now(user_location())
        self._made_nodes(place, writes)
        return place

    def _now(self, line: str) -> Place | None:
        node, in_pass = _C._current_autograd_node(), inside_backward()
        path = self._running()
        updates = self._here.updates
        if updates and updates[-1].in_pass == in_pass and path == PROGRAM:
            update = updates[-1]
            said = {"step": update.called}
            return Place(Phase.OPTIMIZER, update.optimizer, line or update.called, said)
        if in_pass or node is not None:
            return self._of_pass(node, line)
        window = self._recording.window
        if path is None or not window.open or window.updated:
            return None
        if path != PROGRAM:
            return Place(Phase.FORWARD, path, line)
        passed = window.backward_done and self._passed == window.microbatch
        return Place(Phase.GRADIENT if passed else Phase.LOSS, PROGRAM, line)

    def _of_pass(self, node: Any, line: str) -> Place:
        component, forward, name = PROGRAM, "", ""
        if node is not None:
            name = str(node.name()).rpartition("::")[2]
            if (parameter := getattr(node, "variable", None)) is not None:
                component = self._recording.names.parameter(parameter) or PROGRAM
            elif (origin := self._origins.get(node._sequence_nr())) is not None:
                component, forward = origin.component, origin.location
        called = self._pass_called
        # In a backward formula or a hook of the program it is at a line of its own.
        own = line if line != called else ""
        said = {"node": name, "forward": forward, "backward": called}
        return Place(Phase.BACKWARD, component, own or forward or called, said)

    def _made_nodes(self, place: Place | None, writes: bool) -> None:
        """Note which autograd nodes were made since the operator before this one was called."""
        here, numbers = self._here, self._origins
        known, here.next_node = here.next_node, _C._autograd._get_sequence_nr()
        made = range(known, here.next_node)
        wrote, before, here.wrote = here.wrote, here.before, writes
        thread = threading.get_ident()
        origin = here.before = _Origin(thread, place.component, place.location) if place else None
        for number in made:
            # A write to a view makes its node only after the operator has run.
            late = wrote and number != made[-1]
            found = before if late else origin
            taken = numbers.get(number)
            same = taken is None or found is None or taken.thread == found.thread
            numbers[number] = found if same else None
