"""Sketches: 61 numbers from which the distance of two tensors is estimated.

Element ``g`` of the flattened tensor is multiplied by a fixed pseudo-random sign and added to
number ``g % 61``. This is linear, so the sketch of a difference is the difference of the sketches,
and the expected square of its length is that of the difference (a count sketch with one bucket
row; Charikar, Chen and Farach-Colton 2002). The signs come from a table of two blocks' length, read
from another place for each block: every element gets its own sign, so that differences which are
constant or repeat along the tensor are estimated as well as random ones.
"""

import numpy as np
import torch

from traceparity.tracefmt.records import SKETCH_WIDTH

KIND = "signs-61-v1"
"""Named in the header; sketches of different kinds are never compared."""
_CPU = torch.device("cpu")
BLOCK_ROWS = 8192
BLOCK = SKETCH_WIDTH * BLOCK_ROWS
"""Elements handled at once: 2 MB of float32, which stays in the cache between the two passes."""


def splitmix64(count: int, start: int = 0) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """``count`` numbers of the SplitMix64 sequence (Steele, Lea and Flood 2014) from ``start``."""
    with np.errstate(over="ignore"):
        z = (np.arange(start + 1, start + count + 1, dtype=np.uint64)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def block_offset(block: int) -> int:
    """Where in the sign table block number ``block`` begins to read."""
    return int(splitmix64(1, (1 << 32) + block)[0] % np.uint64(BLOCK)) if block else 0


class Sketcher:
    """Makes sketches on one device; holds the sign table and the scratch memory."""

    def __init__(self, device: torch.device = _CPU) -> None:
        self._device = device
        self._signs: torch.Tensor | None = None
        self._scratch = torch.empty(0, device=device)
        self._ones = torch.empty(0, device=device)
        self._offsets: list[int] = []

    def sketch(self, flat: torch.Tensor) -> torch.Tensor:
        """The sketch of a flat float32 tensor: 61 float32, on its device."""
        count = flat.numel()
        if count <= BLOCK:
            return self._block(flat, count, 0)
        total = torch.zeros(SKETCH_WIDTH, device=self._device)
        for block, start in enumerate(range(0, count, BLOCK)):
            size = min(BLOCK, count - start)
            total.add_(self._block(flat[start : start + size], size, self._offset(block)))
        return total

    def _block(self, flat: torch.Tensor, count: int, offset: int) -> torch.Tensor:
        rows = -(-count // SKETCH_WIDTH)
        padded = rows * SKETCH_WIDTH
        if padded > self._scratch.numel():
            self._grow(rows)
        signs = self._sign_table(offset + count)
        scratch = self._scratch
        torch.mul(flat, signs[offset : offset + count], out=scratch[:count])
        if padded != count:
            scratch[count:padded].zero_()
        table = scratch[:padded].view(rows, SKETCH_WIDTH)
        if self._device != _CPU:
            # The product is faster on a CPU, and forbidden on a GPU that must be deterministic.
            return table.sum(0)
        return torch.mv(table.t(), self._ones[:rows])

    def _grow(self, rows: int) -> None:
        # Small programs never pay for the full block.
        rows = min(max(rows, 2 * self._ones.numel()), BLOCK_ROWS)
        self._scratch = torch.empty(rows * SKETCH_WIDTH, device=self._device)
        self._ones = torch.ones(rows, device=self._device)

    def _sign_table(self, needed: int) -> torch.Tensor:
        if self._signs is None or self._signs.numel() < needed:
            size = 2 * BLOCK if needed > BLOCK // 16 else BLOCK // 16
            bits = splitmix64(-(-size // 64)).view(np.uint8)
            signs = np.unpackbits(bits, bitorder="little")[:size].astype(np.float32) * 2 - 1
            self._signs = torch.from_numpy(signs).to(self._device)
        return self._signs

    def _offset(self, block: int) -> int:
        while len(self._offsets) <= block:
            self._offsets.append(block_offset(len(self._offsets)))
        return self._offsets[block]
