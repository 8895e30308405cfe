"""The change log: values that stay until they change, and the last one recorded of each."""

import weakref
from typing import Any, NamedTuple

import torch

from traceparity.recorder.observe import Summary, what_is_written
from traceparity.recorder.pending import is_token
from traceparity.recorder.recording import UNWANTED, Recording, belongs_to, plain_value
from traceparity.recorder.shards import Unobservable
from traceparity.tracefmt.records import Flag, Phase

SMALL = 1 << 16
"""Bytes up to which a tensor is always read again: writes through ``.data`` bump no version."""
_STATEFUL = int(Flag.STATEFUL)
"""As a plain number: `|` of flags is slow."""


class _Known(NamedTuple):
    ref: weakref.ref[torch.Tensor]
    version: int
    pointer: int
    summary: Summary


class ChangeLog:
    """Records stateful sites: a row only where the value is news, unless it is asked for."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._tensors: dict[tuple[str, str], _Known] = {}
        self._plain: dict[tuple[str, str], Any] = {}
        self._unsettled: list[tuple[str, str]] = []

    def tensor(
        self,
        phase: Phase,
        component: str,
        field: str,
        tensor: torch.Tensor,
        *,
        always: bool = False,
        reread: bool = False,
        flags: int = 0,
    ) -> Summary | None:
        """Record a tensor if its bytes are others than the last ones of ``(component, field)``.

        Args:
            phase: Part of the step.
            component: As in the site.
            field: As in the site.
            tensor: The value.
            always: Record it even if it is the same.
            reread: Read its bytes even if storage and version counter say that it is the same.
            flags: Further flags of the row.
        """
        key = (component, field)
        known = self._tensors.get(key)
        written = what_is_written(tensor)
        version = 0 if tensor.is_inference() else written._version
        same = known is not None and known.ref() is written and known.version == version
        same = same and known is not None and known.pointer == _pointer(written)
        if same and not reread and not always:
            return None
        try:
            if same and not reread and known is not None:
                summary = known.summary
            else:
                summary = self._recording.observer.fresh(tensor, known and known.summary)
        except Unobservable as what:
            self._recording.writer.not_observed(component, f"{field} is {what}")
            return None
        self._tensors[key] = _Known(weakref.ref(written), version, _pointer(written), summary)
        self._plain.pop(key, None)
        if always or known is None or known.summary.digest != summary.digest:
            site = self._recording.site(phase, component, field)
            if site != UNWANTED:
                if is_token(summary.digest) and known is not None and not always:
                    pending = self._recording.observer.pending
                    pending.only_news(site, summary.digest, known.summary.digest)
                self._recording.summary(phase, site, summary, flags | _STATEFUL)
        if is_token(summary.digest):
            self._unsettled.append(key)
        return summary

    def settle(self) -> None:
        """Take over the digests that were fetched from devices."""
        pending = self._recording.observer.pending
        for key in self._unsettled:
            known = self._tensors.get(key)
            digest = known and pending.digest(known.summary.digest)
            if known and digest:
                self._tensors[key] = known._replace(summary=known.summary._replace(digest=digest))
        self._unsettled.clear()

    def forget(self, gone: set[str]) -> None:
        """Forget the values of modules and optimizers that are gone."""
        for known in (self._tensors, self._plain):
            for key in [key for key in known if belongs_to(key[0], gone)]:
                del known[key]

    def plain(
        self,
        phase: Phase,
        component: str,
        field: str,
        value: Any,
        *,
        always: bool = False,
        flags: int = 0,
    ) -> None:
        """Record a plain value if it is another than the last one of ``(component, field)``."""
        key = (component, field)
        if not always and key in self._plain and same_plain(self._plain[key], value):
            return
        self._plain[key] = value
        self._tensors.pop(key, None)
        self._recording.plain(phase, component, field, value, flags | _STATEFUL)

    def value(
        self,
        phase: Phase,
        component: str,
        field: str,
        value: Any,
        *,
        always: bool = False,
        reread: bool = False,
        flags: int = 0,
    ) -> None:
        """Record a tensor or a plain value, whichever it is."""
        if isinstance(value, torch.Tensor):
            self.tensor(phase, component, field, value, always=always, reread=reread, flags=flags)
        else:
            self.plain(phase, component, field, plain_value(value), always=always, flags=flags)


def same_plain(a: Any, b: Any) -> bool:
    """Whether two plain values are the same to the bit: 1 is not 1.0, and NaN is NaN."""
    return type(a) is type(b) and (a == b or (a != a and b != b))


def _pointer(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:
        # Sparse and functional tensors have no storage; identity and version must do.
        return 0
