"""Point-to-point calls that the program issues: what it sends to another process and receives.

`torch.distributed` compares `isend` and `irecv` by identity, so these functions stay as they are;
what they all come down to is seen, the methods of a process group.
"""

from typing import Any

import torch

from traceparity.recorder.exchanges import Exchanges
from traceparity.recorder.patches import Patches

_CALLS = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
"""What the program calls in place of the methods."""


class PointToPointHooks:
    """Sees what process groups send and receive."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges

    def install(self, patches: Patches) -> None:
        """Begin to see point-to-point calls."""
        if not torch.distributed.is_available():
            return
        group: Any = torch.distributed.ProcessGroup
        patches.before(group, "send", self._sends)
        patches.after(group, "recv", self._receives)
        patches.after(group, "recv_anysource", self._receives_from_any)

    def _sends(self, args: Any, kwargs: Any) -> None:
        if self._exchanges.wanted(through=_CALLS) and len(args) > 2:
            self._exchanges.group("send", _facts(args[0], "to", args[2]))
            self._exchanges.given("send", args[1])

    def _receives(self, result: Any, args: Any, kwargs: Any) -> None:
        if len(args) > 2:
            self._begins(result, args, args[2])

    def _receives_from_any(self, result: Any, args: Any, kwargs: Any) -> None:
        self._begins(result, args, None)

    def _begins(self, work: Any, args: Any, peer: int | None) -> None:
        if self._exchanges.wanted(through=_CALLS):
            self._exchanges.group("recv", _facts(args[0], "from", peer))
            self._exchanges.later(id(work), work, "recv", list(args[1]))


def _facts(group: Any, role: str, peer: int | None) -> dict[str, Any]:
    """Who may take part, and the other side as a rank among all; None for whoever sends first."""
    dist = torch.distributed
    other = None if peer is None else dist.get_global_rank(group, peer)
    return {"ranks": dist.get_process_group_ranks(group), role: other}
