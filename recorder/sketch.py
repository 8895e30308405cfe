"""Sketches: 61 numbers from which the distance of two tensors is estimated.

Element ``g`` of the flattened tensor is multiplied by a fixed pseudo-random sign and added to
number ``g % 61``. This is linear, so the sketch of a difference is the difference of the sketches,
and the expected square of its length is that of the difference (a count sketch with one bucket
row; Charikar, Chen and Farach-Colton 2002). The signs come from a table of two blocks' length, read
from another place for each block: every element gets its own sign, so that differences which are
constant or repeat along the tensor are estimated as well as random ones.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch

from traceparity.tracefmt.records import SKETCH_WIDTH

KIND = "signs-61-v1"
"""Named in the header; sketches of different kinds are never compared."""
_CPU = torch.device("cpu")
BLOCK_ROWS = 8192
BLOCK = SKETCH_WIDTH * BLOCK_ROWS
"""Elements handled at once: 2 MB of float32, which stays in the cache between the two passes."""
_FEW = 64 * SKETCH_WIDTH
"""Elements up to which numpy is faster: a call of it costs a fifth of one of torch."""
_FEW_ROWS = 512
"""Rows up to which a sum is faster on a CPU than a product."""


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

    def sketch(self, flat: torch.Tensor, first: int = 0) -> torch.Tensor:
        """The sketch of a flat float32 tensor: 61 float32, on its device.

        Args:
            flat: The elements.
            first: Index of the first one in the tensor of which they are a stretch.
        """
        count = flat.numel()
        if first + count <= BLOCK:
            return self._block(flat, 0, first)
        total, done = torch.zeros(SKETCH_WIDTH, device=self._device), 0
        while done < count:
            block, inside = divmod(first + done, BLOCK)
            size = min(BLOCK - inside, count - done)
            total.add_(self._block(flat[done : done + size], self._offset(block), inside))
            done += size
        return total

    def packed(self, flat: torch.Tensor) -> bytes:
        """The bytes of the sketch of a flat float32 tensor on the CPU."""
        count = flat.numel()
        if count > _FEW:
            return self.sketch(flat).numpy().tobytes()
        # Infinities must not make numpy warn the program, or raise where it asked for that.
        with np.errstate(all="ignore"):
            product = flat.numpy() * self._sign_table(count).numpy()[:count]
            if count <= SKETCH_WIDTH:
                return bytes(product.tobytes()) + bytes(4 * (SKETCH_WIDTH - count))
            whole = count - count % SKETCH_WIDTH
            total = product[:whole].reshape(-1, SKETCH_WIDTH).sum(0)
            total[: count - whole] += product[whole:]
            return bytes(total.tobytes())

    def shard(
        self,
        flat: torch.Tensor,
        shape: tuple[int, ...],
        offset: tuple[int, ...],
        whole: tuple[int, ...],
    ) -> torch.Tensor:
        """The sketch of a box of elements, each with the index that it has in the whole tensor.

        Args:
            flat: The elements of the box, flattened.
            shape: Sizes of the box.
            offset: Where in the whole tensor it begins.
            whole: Shape of the whole tensor.
        """
        firsts, run = _stretches(shape, offset, whole)
        if len(firsts) == 1:
            return self.sketch(flat, int(firsts[0]))
        total = np.zeros(SKETCH_WIDTH)
        for part, index in _pieces(flat.numpy(), firsts, run):
            block, inside = np.divmod(index, BLOCK)
            offsets = np.array([self._offset(each) for each in range(int(block[-1]) + 1)])
            places = offsets[block] + inside
            signs = self._sign_table(int(places.max()) + 1).numpy()
            total += np.bincount(index % SKETCH_WIDTH, part * signs[places], SKETCH_WIDTH)
        return torch.from_numpy(total.astype(np.float32))

    def scattered(self, values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """The sketch of a tensor that is zero but for some float32 values.

        Args:
            values: The values, flat.
            places: Index of each in the flattened tensor.
        """
        total = torch.zeros(SKETCH_WIDTH)
        if not len(values):
            return total
        blocks, within = places.div(BLOCK, rounding_mode="floor"), places % BLOCK
        self._offset(int(blocks.max()))
        at = torch.tensor(self._offsets)[blocks] + within
        signs = self._sign_table(int(at.max()) + 1)[at]
        return total.index_add_(0, within % SKETCH_WIDTH, values * signs)

    def _block(self, flat: torch.Tensor, offset: int, inside: int) -> torch.Tensor:
        """Of elements that begin ``inside`` a block whose signs begin at ``offset``."""
        count, lead = flat.numel(), inside % SKETCH_WIDTH
        rows = -(-(lead + count) // SKETCH_WIDTH)
        padded = rows * SKETCH_WIDTH
        if padded > self._scratch.numel():
            self._grow(rows)
        begin = offset + inside
        signs = self._sign_table(begin + count)
        scratch = self._scratch
        if lead:
            scratch[:lead].zero_()
        torch.mul(flat, signs[begin : begin + count], out=scratch[lead : lead + count])
        if padded != lead + count:
            scratch[lead + count : padded].zero_()
        table = scratch[:padded].view(rows, SKETCH_WIDTH)
        if self._device != _CPU or rows <= _FEW_ROWS:
            # A product is forbidden on a GPU that must be deterministic.
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


def _stretches(
    shape: tuple[int, ...], offset: tuple[int, ...], whole: tuple[int, ...]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    """Where the box's unbroken stretches begin in the flattened whole, and how long each is."""
    cut = max((dim for dim, size in enumerate(whole) if shape[dim] != size), default=0)
    inner = math.prod(whole[cut + 1 :])
    firsts, stride = np.zeros(1, np.int64), math.prod(whole[1:])
    for dim in range(cut):
        steps = (offset[dim] + np.arange(shape[dim], dtype=np.int64)) * stride
        firsts = (firsts[:, None] + steps).reshape(-1)
        stride //= whole[dim + 1]
    return firsts + offset[cut] * inner, shape[cut] * inner


def _pieces(
    flat: np.ndarray[tuple[int], np.dtype[np.float32]],
    firsts: np.ndarray[tuple[int], np.dtype[np.int64]],
    run: int,
) -> Iterator[
    tuple[np.ndarray[tuple[int], np.dtype[np.float32]], np.ndarray[tuple[int], np.dtype[np.int64]]]
]:
    """The elements with their indices in the whole tensor, about a block of them at once."""
    many = max(1, BLOCK // run)
    along = np.arange(run, dtype=np.int64)
    for start in range(0, len(firsts), many):
        index = (firsts[start : start + many, None] + along).reshape(-1)
        yield flat[start * run : start * run + len(index)], index
