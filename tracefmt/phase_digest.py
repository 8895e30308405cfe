"""Digests over the observations of a step, one a phase.

They depend on sites by name, not on ids, so that two files agree when their observations do.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from traceparity.tracefmt.records import Flag, Phase, Site

EMPTY = bytes(16)
_ENTRY = np.dtype([("site", "<u8"), ("call", "<u4"), ("microbatch", "<u4"), ("digest", "<u8", 2)])


def site_hash(site: Site) -> int:
    """64 bits that name a component and a field in every file."""
    return int(xxhash.xxh3_64_intdigest(f"{site.component}\0{site.field}".encode()))


class PhaseDigests:
    """The digests of one step, fed with its rows part by part."""

    __slots__ = ("_hashers", "counts")

    def __init__(self) -> None:
        self._hashers: list[Any] = [None] * len(Phase)
        self.counts = [0] * len(Phase)

    def update(
        self,
        rows: Any,
        site_phases: npt.NDArray[np.uint8],
        site_hashes: npt.NDArray[np.uint64],
    ) -> None:
        """Take in rows.

        Args:
            rows: ``site``, ``call``, ``microbatch``, ``flags`` and ``digest``, by key.
            site_phases: Phase of each site id.
            site_hashes: `site_hash` of each site id.
        """
        ids = rows["site"]
        phases = site_phases[ids]
        judged = (rows["flags"] & Flag.CONTEXT) == 0
        for phase in np.unique(phases).tolist():
            mine = phases == phase
            self.counts[phase] += int(mine.sum())
            mine &= judged
            entries = np.empty(int(mine.sum()), _ENTRY)
            if not len(entries):
                continue
            entries["site"] = site_hashes[ids[mine]]
            entries["call"] = rows["call"][mine]
            entries["microbatch"] = rows["microbatch"][mine]
            entries["digest"] = rows["digest"][mine]
            if self._hashers[phase] is None:
                self._hashers[phase] = xxhash.xxh3_128()
            self._hashers[phase].update(entries.tobytes())

    def digests(self) -> tuple[bytes, ...]:
        """16 bytes a phase; zeros where nothing judged was seen."""
        return tuple(EMPTY if hasher is None else hasher.digest() for hasher in self._hashers)
