"""Graph room: for how many tensors of one pass gradients may be watched.

torch frees a graph in a loop, but for nodes that Python has seen: those it frees one inside the
other (2.13). A hook makes Python see a node, and a chain of some ten thousand of them overflows the
stack. The recorder must not be what makes a program with so many calls crash.
"""

import resource

from traceparity.recorder.window import Window

TOO_DEEP = "further gradients of outputs in a pass of so many calls (the stack could overflow)"
_USUAL_STACK = 8 << 20
"""Bytes. A graph may be freed in any thread, and threads have no more."""
_STACK_OF_A_NODE = 1024
"""Bytes of stack that freeing one takes, with room to spare: about 290 were measured."""


class GraphRoom:
    """Counts down anew in each pass."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._left = 0
        self._counted = -1, -1

    def take(self) -> bool:
        """Whether there is room for one more tensor."""
        place = self._window.number, self._window.microbatch
        if place != self._counted:
            self._counted, self._left = place, most_watched()
        self._left -= 1
        return self._left >= 0


def most_watched() -> int:
    """How many tensors of one pass may be watched."""
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return min(_USUAL_STACK, limit if limit > 0 else _USUAL_STACK) // _STACK_OF_A_NODE
