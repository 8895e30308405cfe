"""The digest of a tensor on a device: sums of products there, 16 bytes fetched later.

The bytes are read as little-endian signed 32-bit words ``w``, zeros added up to the last whole
one. Lane ``k`` of a block of `BLOCK` words is the sum of ``w[i] * m[k][i]`` modulo 2^64, and lane
``k`` of the tensor the sum of ``lane[b] * s[b]`` over its blocks. The multipliers ``m`` are fixed
pseudo-random 64-bit numbers and the ``s`` odd ones (multiply-and-add hashing; Carter and Wegman
1979), so that two tensors which differ have equal lanes with a probability of at most 2^-66. The
digest is the xxh3-128 of the two lanes, seeded as that of the bytes would be.
"""

import numpy as np
import torch

from traceparity.recorder.sketch import splitmix64

KIND = "words-128-v1"
"""Named in the header; digests of different kinds are never compared."""
BLOCK = 1 << 20
LANES = 2
_SLICE = 8
"""Blocks handled at once: 64 MB of products."""
_SCALES = 1 << 33
"""Where in the pseudo-random sequence the ``s`` begin; the ``m`` begin at 0."""


def multipliers() -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The ``m``, `LANES` rows of `BLOCK`."""
    return splitmix64(LANES * BLOCK).view(np.int64).reshape(LANES, BLOCK)


def scales(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The ``s`` of the first ``count`` blocks."""
    return (splitmix64(count, _SCALES) | np.uint64(1)).view(np.int64)


class WordDigester:
    """Makes lanes on one device; holds the multipliers there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._multipliers = torch.from_numpy(multipliers()).to(device)
        self._scales = torch.empty(0, dtype=torch.int64, device=device)

    def lanes(self, dense: torch.Tensor) -> torch.Tensor:
        """The lanes of a contiguous tensor: int64 of shape ``(2,)``, on the device, not awaited."""
        words = words_of(dense)
        count = words.numel()
        whole = count // BLOCK
        total = torch.zeros(LANES, dtype=torch.int64, device=self._device)
        scale = self._scale(whole + 1)
        for start in range(0, whole, _SLICE):
            stop = min(start + _SLICE, whole)
            blocks = words[start * BLOCK : stop * BLOCK].view(-1, BLOCK).to(torch.int64)
            for lane in range(LANES):
                sums = (blocks * self._multipliers[lane]).sum(1)
                total[lane] += (sums * scale[start:stop]).sum()
        rest = words[whole * BLOCK :].to(torch.int64)
        total += (rest * self._multipliers[:, : rest.numel()]).sum(1) * scale[whole]
        return total

    def _scale(self, count: int) -> torch.Tensor:
        if self._scales.numel() < count:
            self._scales = torch.from_numpy(scales(2 * count)).to(self._device)
        return self._scales


def words_of(dense: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor as int32, copied only where it does not end in a word."""
    size = dense.numel() * dense.element_size()
    if dense.element_size() >= 4:
        return dense.view(-1).view(torch.int32)
    flat = dense.view(-1).view(torch.uint8)
    if size % 4 or flat.storage_offset() % 4:
        padded = torch.zeros(-(-size // 4) * 4, dtype=torch.uint8, device=dense.device)
        padded[:size] = flat
        flat = padded
    return flat.view(torch.int32)
