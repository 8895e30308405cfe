"""Digests over the observations of a step, one a phase.

They depend on sites by name, not on ids, so that two files agree when their observations do.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from traceparity.tracefmt.records import Flag, Phase, Site

EMPTY = bytes(16)
_ENTRY = 32
"""Bytes that a row adds to its digest: site hash, call, micro-batch, digest."""
_PHASES = len(Phase)
HASHED = ("site", "call", "microbatch", "flags", "digest")
"""The columns that a phase digest is made of; the flags say which rows count."""


def site_hash(site: Site) -> int:
    """64 bits that name a component and a field in every file."""
    name = f"{site.component}\0{site.field}".encode("utf-8", "backslashreplace")
    return int(xxhash.xxh3_64_intdigest(name))


class SiteColumns:
    """Phase and hash of each site by id, growing as sites are added."""

    __slots__ = ("_hashes", "_phases", "_size")

    def __init__(self) -> None:
        self._phases = np.empty(64, np.uint8)
        self._hashes = np.empty(64, np.uint64)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, site: Site) -> None:
        """Add the next site."""
        at = self._size
        if at == len(self._phases):
            self._phases = np.concatenate([self._phases, self._phases])
            self._hashes = np.concatenate([self._hashes, self._hashes])
        self._phases[at], self._hashes[at] = site.phase, site_hash(site)
        self._size = at + 1

    @property
    def phases(self) -> npt.NDArray[np.uint8]:
        """Phase of each site."""
        return self._phases[: self._size]

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """`site_hash` of each site."""
        return self._hashes[: self._size]


class PhaseDigests:
    """The digests of one step, fed with its rows part by part.

    Attributes:
        counts: Rows in each phase, context included.
    """

    __slots__ = ("_hashers", "counts")

    def __init__(self) -> None:
        self._hashers: list[Any] = [None] * _PHASES
        self.counts = [0] * _PHASES

    def copy(self) -> "PhaseDigests":
        """The same digests, to be fed on their own."""
        twin = PhaseDigests()
        twin._hashers = [None if each is None else each.copy() for each in self._hashers]
        twin.counts = list(self.counts)
        return twin

    def update(self, rows: Any, sites: SiteColumns) -> None:
        """Take in rows.

        Args:
            rows: ``site``, ``call``, ``microbatch``, ``flags`` and ``digest``, by key.
            sites: What the site ids of the rows stand for.
        """
        ids = rows["site"]
        context = (rows["flags"] & np.uint16(Flag.CONTEXT)) != 0
        # Sorted by this, the judged rows of each phase lie together and in order, context last.
        place = sites.phases[ids] + np.uint8(_PHASES) * context
        sizes = np.bincount(place, minlength=2 * _PHASES).tolist()
        entries = np.empty((len(ids), _ENTRY // 8), "<u8")
        entries[:, 0] = sites.hashes[ids]
        entries[:, 1] = rows["microbatch"]
        entries[:, 1] <<= np.uint64(32)
        entries[:, 1] |= rows["call"]
        entries[:, 2:] = rows["digest"]
        data, at = memoryview(entries[np.argsort(place, kind="stable")].tobytes()), 0
        for phase in range(_PHASES):
            judged = sizes[phase]
            self.counts[phase] += judged + sizes[_PHASES + phase]
            if judged:
                if self._hashers[phase] is None:
                    self._hashers[phase] = xxhash.xxh3_128()
                self._hashers[phase].update(data[at : at + judged * _ENTRY])
                at += judged * _ENTRY

    def digests(self) -> tuple[bytes, ...]:
        """16 bytes a phase; zeros where nothing judged was seen."""
        return tuple(EMPTY if hasher is None else hasher.digest() for hasher in self._hashers)
